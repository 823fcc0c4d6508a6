"""
The chain editor: each message of a sequence gets a signed link with its number and the hash of its predecessor.

1. Links are stored before the batch continues, so that a redelivered message gets the same link, even after a crash and
   from another instance of the app. If two instances write, the later one reads again.
2. A link must be the same at every delivery: an editor before `chain` must not change a message differently each time.
3. A message that is redelivered after WINDOW others is linked again, with a new number.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple

from pydantic import Field

from shared.editors.options import Stateless, Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import MESSAGE_ID, BoundNames, attach, covers
from shared.editors.protection.jws import SigningKey
from shared.editors.protection.key_names import KeyId, KeyName
from shared.editors.protection.keys import KeyRings
from shared.editors.protection.links import (
    LINK,
    Link,
    Progress,
    Sequences,
    StoreOptions,
    content_digest,
    each_sequence,
    hash_of,
    identities,
)
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.protocols import BatchEditor, EditedTogether
from shared.time_limit import TimeLimit

# The partition and the entity are in the link only: a message does not have them.
_DEFINING = {"session": "sys.SessionId", "partition_key": "sys.PartitionKey"}
_REMEMBERED_SEQUENCES = 1_000


class ChainedProperty(Strict):
    """A sequence of the messages with the same value of an application property."""

    property: str = Field(min_length=1)
    """Application property whose value names the sequence."""


class ChainOptions(Strict):
    """The definition of a sequence, and the key that signs its links."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""
    sequence: Literal["session", "partition_key", "partition", "entity"] | ChainedProperty
    """What the messages of a sequence have in common. `session` needs a source with sessions; `partition` and
    `partition_key` need an event hub; `entity` and a property need one partition, or `single_instance`."""
    properties: BoundNames = (MESSAGE_ID,)
    """Properties that a link covers, in addition to the body and to what defines the sequence."""
    store: StoreOptions
    """Where the state of each sequence is stored."""
    single_instance: bool = False
    """Whether the app always runs as one instance. Of a source without sessions, links then follow the order in which
    the instance receives messages, which may differ from the order in which they were sent."""


class ChainStep(Step):
    """
    Links each message to the one before it in its sequence: a signed number and hash in the property repl-chain.

    `verify-chain` at the other end finds missing, reordered, altered and inserted messages. It cannot find that the
    last messages of a sequence are missing before a later one arrives.
    """

    keeps_properties: ClassVar[bool] = True
    sets: ClassVar[frozenset[str]] = frozenset((LINK,))
    options: ChainOptions = Field(alias="chain")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        return Chain(self.options, task)


class _Place(NamedTuple):
    """A message's contribution to its sequence."""

    identity: str
    digest: str


class Chain(Stateless):
    """Links messages, and stores the links before the messages continue."""

    name = "chain"

    def __init__(self, options: ChainOptions, task: TaskFacts) -> None:
        """Sign with the newest key of a secret, or a named one."""
        self._rings = KeyRings(options.key, task, "chain.key")
        self._kid = options.kid
        self._names = _bound(options)
        self._sequence_of = _sequence_of(options.sequence)
        documents = options.store.open_documents(task, "chain.store")
        self._sequences = Sequences(documents, f"chain/{task.name}", _REMEMBERED_SEQUENCES)
        self._time_limit = TimeLimit(task.edit_seconds)

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return each message with its link, or rejected; raises if the keys or the store are unavailable."""
        ring = await self._rings.ring(timeout_seconds=timeout_seconds)
        key = ring.once(SigningKey, self._kid)
        identified = iter(identities(messages))
        placed = await self._time_limit.each(lambda message: self._place(message, next(identified)), messages)
        results: list[EditedTogether] = [each if isinstance(each, MessageRejected) else () for each in placed]
        places = {index: each for index, each in enumerate(placed) if not isinstance(each, MessageRejected)}

        async def link(sequence: str, members: list[tuple[int, _Place]]) -> None:
            links = await self._sequences.update(
                sequence,
                lambda progress: [self._link(sequence, progress, place) for _, place in members],
                *(len(members), self.name),
            )
            linked = iter(links)
            signed = await self._time_limit.each(
                lambda message: _sign(message, key, next(linked)), [messages[index] for index, _ in members]
            )
            for (index, _), result in zip(members, signed, strict=True):
                results[index] = result if isinstance(result, MessageRejected) else (result,)

        await each_sequence(places, link, self.name, timeout_seconds)
        return results

    def _place(self, message: Message, identity: str | None) -> tuple[str, _Place]:
        if identity is None:
            problem = "has neither a sequence number nor an id, so it would not be recognized when it is redelivered"
            raise MessageRejected("NotChained", problem)
        return self._sequence_of(message), _Place(identity, content_digest(self._names, message))

    def _link(self, sequence: str, progress: Progress, place: _Place) -> bytes | MessageRejected:
        known = progress.number_of(place.identity)
        number = progress.number + 1 if known is None else known
        payload = Link(sequence, number, progress.hash_at(number - 1) or "", self._names, place.digest).encode()
        if known is None:
            progress.append(place.identity, hash_of(payload))
        elif progress.hash_at(number) != hash_of(payload):
            problem = f"was linked as number {number} in an earlier delivery, with other content"
            return MessageRejected("ChainedDifferently", problem)
        return payload


def _sign(message: Message, key: SigningKey, link: bytes | MessageRejected) -> Message:
    if isinstance(link, MessageRejected):
        raise link
    # A copy, because the batch may be edited again with the original messages.
    signed = message.copy()
    attach(signed, LINK, key.statement(link))
    return signed


def _bound(options: ChainOptions) -> tuple[str, ...]:
    """Return the properties that a link covers: what defines its sequence is always one of them."""
    names = options.properties
    if isinstance(options.sequence, ChainedProperty):
        defining = options.sequence.property
    else:
        defining = _DEFINING.get(options.sequence, "")
    if not defining or covers(names, (defining,)):
        return names
    return tuple(sorted((*names, defining)))


def _sequence_of(sequence: str | ChainedProperty) -> Callable[[Message], str]:
    """Return a function from a message to the name of its sequence; it raises MessageRejected without one."""

    def named(origin: Origin, what: str, key: str | None) -> str:
        if key is None:
            raise MessageRejected("NotChained", f"has no {what}, which names its sequence")
        return f"{origin.site}/{origin.entity}/{key}"

    if isinstance(sequence, ChainedProperty):
        name = sequence.property

        def by_property(message: Message) -> str:
            value = RuleProperties(message).user(name.lower())
            key = None if value is None or value.payload is None else str(value.payload)
            return named(message.arrival.origin, f"property {name}", key)

        return by_property
    match sequence:
        case "session":
            return lambda message: named(message.arrival.origin, "session id", message.session_id)
        case "partition_key":
            return lambda message: named(message.arrival.origin, "partition key", message.partition_key)
        case "partition":
            return lambda message: named(message.arrival.origin, "partition", message.arrival.origin.partition)
        case _:
            return lambda message: f"{message.arrival.origin.site}/{message.arrival.origin.entity}"
