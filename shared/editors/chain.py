"""
The chain editor: each message of a sequence carries its number and the hash of the one before, signed.

1. Which message has which link is kept before the batch goes on, so that a redelivered message gets the same one,
   after a crash and from another instance of the app. Of two instances that write, the later one reads again.
2. What is in a link is the same at every delivery: nothing before `chain` may make another message of the same one.
3. A message that comes again when WINDOW others have come since is linked anew, as another one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field

from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import MESSAGE_ID, BoundNames, attach
from shared.editors.protection.key_names import KeyId, KeyName, check_key
from shared.editors.protection.links import (
    LINK,
    WINDOW,
    Link,
    Progress,
    Sequences,
    StoreOptions,
    answered_within,
    content_digest,
    each_of,
    grouped,
    hash_of,
    identities,
)
from shared.errors import MessageRejected, TargetUnavailable
from shared.message.message import Arrival, Message, Origin
from shared.message.rule_properties import RuleProperties
from shared.protocols import BatchEditor, EditedTogether, Outcome
from shared.stores.documents import Changed

if TYPE_CHECKING:
    from shared.editors.protection.jws import SigningKey
    from shared.editors.protection.keys import KeyRings, PerRing

_ATTEMPTS = 5
_REMEMBERED_SEQUENCES = 1_000


class ChainedProperty(Strict):
    """Messages with one value of an application property are a sequence."""

    property: str = Field(min_length=1)


class ChainOptions(Strict):
    """What a sequence is, and with which key its links are signed."""

    key: KeyName
    """Secret with the key: a JSON Web Key, or a set of them, of which the last is the newest and is taken."""
    kid: KeyId | None = None
    """Id of another key of the set to be taken."""
    sequence: Literal["session", "partition_key", "partition", "entity"] | ChainedProperty
    """What its messages have in common. A session needs a source with sessions, a partition or its key a hub; the whole
    entity, or a property, a source that is in order as a whole: one partition, or an app of a `single_instance`."""
    properties: BoundNames = (MESSAGE_ID,)
    """Properties that a link is over, beside the body."""
    store: StoreOptions
    """Where it is kept how far each sequence has come."""
    single_instance: bool = False
    """That the app never runs as more than one instance, so that the order of an entity without sessions is kept."""


class ChainStep(Step):
    """
    Links each message to the one before it in its sequence: number and hash of its predecessor, signed, in repl-chain.

    `verify-chain` at the far end tells what is missing, reordered, altered or inserted; the end of a sequence that was
    cut off it cannot tell before a later message arrives.
    """

    keeps_properties: ClassVar[bool] = True
    options: ChainOptions = Field(alias="chain")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or takes off."""
        return frozenset((LINK.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that does what the options say."""
        from shared.editors.protection.keys import KeyRings  # noqa: PLC0415 - tasks without keys do not pay for the library

        check_key(task, "chain.key", self.options.key)
        documents = self.options.store.open(task, "chain.store")
        rings = KeyRings(self.options.key, task.secrets)
        return Chain(self.options, rings, Sequences(documents, f"chain/{task.name}"))


class _Place(NamedTuple):
    """What a message brings to its sequence."""

    identity: str
    digest: str


class Chain:
    """Links messages, and keeps the links before the messages go on."""

    name = "chain"
    joins = False

    def __init__(self, options: ChainOptions, rings: "KeyRings", sequences: Sequences) -> None:
        """Sign with the newest key of *rings*, or a named one."""
        from shared.editors.protection.jws import signing_keys  # noqa: PLC0415 - see above

        self._rings = rings
        self._key: PerRing[SigningKey] = signing_keys(options.kid)
        self._names = options.properties
        self._sequence_of = _sequence_of(options.sequence)
        self._sequences = sequences
        # Where it was when it was last read or written; who writes finds out whether it still is.
        self._known: OrderedDict[str, tuple[Progress, str | None]] = OrderedDict()

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return each message with its link, or rejected; raises what keeps the keys, or the store, away."""
        ring = await self._rings.ring(timeout_seconds=timeout_seconds)
        key = self._key.of(ring)
        results: list[EditedTogether] = [()] * len(messages)
        places: dict[int, tuple[str, _Place]] = {}
        for index, (message, identity) in enumerate(zip(messages, identities(messages), strict=True)):
            try:
                places[index] = self._placed(message, identity)
            except MessageRejected as error:
                results[index] = MessageRejected(error.reason, f"{self.name}: {error.description}")

        async def linked(sequence: str, members: list[tuple[int, _Place]]) -> None:
            links = await self._linked(sequence, [place for _, place in members])
            for (index, _), link in zip(members, links, strict=True):
                results[index] = link if isinstance(link, MessageRejected) else (_signed(messages[index], key, link),)

        with answered_within(self.name, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                await each_of(grouped(places), linked)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Nothing is to be done: the links are kept already."""

    def _placed(self, message: Message, identity: str | None) -> tuple[str, _Place]:
        if identity is None:
            raise MessageRejected("NotChained", "has neither a sequence number nor an id, so it would not be recognized when it is redelivered")
        return self._sequence_of(message), _Place(identity, content_digest(self._names, message))

    async def _linked(self, sequence: str, places: Sequence[_Place]) -> list[bytes | MessageRejected]:
        """Return the link of each message, once it is kept."""
        async with self._sequences.turn(sequence):
            for _ in range(_ATTEMPTS):
                known = self._known.pop(sequence, None) or await self._sequences.read(sequence)
                progress = known[0].copy()
                links = [self._link(sequence, progress, place) for place in places]
                version = known[1]
                if progress.number > known[0].number:
                    try:
                        keep = max(WINDOW, 2 * len(places))
                        version = await self._sequences.write(sequence, progress, version, keep)
                    except Changed:
                        continue
                self._known[sequence] = progress, version
                while len(self._known) > _REMEMBERED_SEQUENCES:
                    self._known.popitem(last=False)
                return links
        raise TargetUnavailable(f"{self.name}: other instances keep writing the same sequence")

    def _link(self, sequence: str, progress: Progress, place: _Place) -> bytes | MessageRejected:
        known = progress.number_of(place.identity)
        number = progress.number + 1 if known is None else known
        payload = Link(sequence, number, progress.hash_at(number - 1) or "", self._names, place.digest).encode()
        if known is None:
            progress.append(place.identity, hash_of(payload))
        elif progress.hash_at(number) != hash_of(payload):
            told = f"{self.name}: was linked as number {number} in an earlier delivery, with other content"
            return MessageRejected("ChainedDifferently", told)
        return payload


def _signed(message: Message, key: "SigningKey", link: bytes) -> Message:
    # A copy: the batch may be asked for again, with the messages as they were.
    signed = message.copy()
    attach(signed, LINK, key.statement(link))
    return signed


def _sequence_of(sequence: str | ChainedProperty) -> Callable[[Message], str]:
    """Return what gives the name of a message's sequence; it raises MessageRejected for a message of none."""

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
