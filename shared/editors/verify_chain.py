"""
The verify-chain editor: finds missing, reordered, altered and inserted messages of a chained sequence.

1. The state of a sequence is the last message that was passed on. It is stored when the target has the message, so that
   a message that never arrived is not taken for a redelivery.
2. The next message must have the next number and the hash of the last link. Otherwise it is rejected and the state
   stays, until the right message comes, or `accept` names the number at which to continue.
3. A message that was passed on before may come again, with the same number and hash: that is no violation.
"""

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import MESSAGE_ID, BoundNames, covers
from shared.editors.protection.jws import verify_statement
from shared.editors.protection.key_names import KeyName
from shared.editors.protection.keys import KeyRing, KeyRings, UnknownKey
from shared.editors.protection.links import (
    LINK,
    Link,
    Progress,
    Sequences,
    StoreOptions,
    content_digest,
    decode_link,
    each_sequence,
    hash_of,
    identities,
)
from shared.errors import MessageRejected
from shared.message.arrival import Arrival, Key
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether, Outcome, Withheld

# Messages of batches that were not settled; their next delivery replaces the entries.
_MOST_PENDING = 100_000


class VerifyChainOptions(Strict):
    """The link that a message must have."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set; a link names its `kid`."""
    chain_of: Annotated[str, Field(min_length=1)] | None = None
    """Site and entity, such as `west/orders`, where the messages must have been chained; by default anywhere."""
    properties: BoundNames = (MESSAGE_ID,)
    """Properties that a link must cover; all covered properties are always compared."""
    store: StoreOptions
    """Where the state of each sequence is stored; it may be the same place as that of `chain`."""
    begin: Literal["first", "any"] = "first"
    """Whether a new sequence must begin with number 1, or with any number."""
    duplicates: Literal["pass", "withhold"] = "pass"
    """What happens to a message that was passed on before."""
    accept: Mapping[str, Annotated[int, Field(ge=1)]] = Field(default={}, examples=[{"west/orders/4711": 12}])
    """Decisions of an operator: sequences by name, with the number at which each continues after a gap."""
    single_instance: bool = False
    """Whether the app always runs as one instance, which a source without sessions requires. Service Bus may deliver
    messages of such a source in another order; they are then rejected as ChainReordered."""
    remove: bool = False
    """Whether to remove the link from valid messages."""


class VerifyChainStep(Step):
    """
    Lets the messages of a sequence through in the order in which `chain` has linked them.

    Others are rejected as ChainMissing, ChainReordered, ChainAltered or ChainInserted, with their numbers.
    """

    keeps_properties: ClassVar[bool] = True
    sets: ClassVar[frozenset[str]] = frozenset((LINK,))
    options: VerifyChainOptions = Field(alias="verify-chain")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        return VerifyChain(self.options, task)


class _Linked(NamedTuple):
    """The verified link of a message; one that was let through counts once the message was sent."""

    link: Link
    hash: str
    identity: str = ""
    begins: bool = False
    """Whether the sequence continues with it, regardless of earlier messages."""


class VerifyChain:
    """Lets messages through that continue their sequence."""

    name = "verify-chain"
    joins = False

    def __init__(self, options: VerifyChainOptions, task: TaskFacts) -> None:
        """Verify with the keys of a secret."""
        self._options = options
        self._rings = KeyRings(options.key, task, "verify-chain.key")
        documents = options.store.open_documents(task, "verify-chain.store")
        self._sequences = Sequences(documents, f"verify-chain/{task.name}")
        self._pending: OrderedDict[Key | Arrival, list[_Linked]] = OrderedDict()

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return each message, withheld, or rejected out of sequence; raises if the store is unavailable."""
        checked = await self._rings.each(messages, self._check, timeout_seconds=timeout_seconds)
        results: list[EditedTogether] = [
            each if isinstance(each, MessageRejected) else (self._strip_link(message),)
            for message, each in zip(messages, checked, strict=True)
        ]
        passed: dict[int, _Linked] = {}

        async def judge(sequence: str, members: list[tuple[int, _Linked]]) -> None:
            progress, version = await self._sequences.read(sequence)
            confirmed = progress.copy()
            later = [linked.link.number for _, linked in members]
            for index, linked in members:
                later.remove(linked.link.number)
                try:
                    passes = self._judge(linked, progress, later, is_new=version is None)
                except MessageRejected as error:
                    results[index] = error
                    continue
                if passes is not None:
                    passed[index] = passes
                elif self._is_withheld(linked, confirmed):
                    problem = f"number {linked.link.number} of {sequence} was passed on before"
                    results[index] = Withheld(problem)

        linked = {
            index: (each.link.sequence, each._replace(identity=identity or ""))
            for index, (each, identity) in enumerate(zip(checked, identities(messages), strict=True))
            if isinstance(each, _Linked)
        }
        await each_sequence(linked, judge, self.name, timeout_seconds)
        self._note(messages, passed)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Store the states of the sequences after the sent messages; raises if the store is unavailable."""
        ended = Counter(arrival.key or arrival for arrival, _ in outcomes)
        # For a message that was split: all of its parts.
        done = {arrival: self._pending[arrival] for arrival in ended if arrival in self._pending}
        done = {arrival: passed for arrival, passed in done.items() if len(passed) <= ended[arrival]}
        passed = dict(enumerate((each.link.sequence, each) for group in done.values() for each in group))

        async def keep(sequence: str, members: list[tuple[int, _Linked]]) -> None:
            ordered = sorted((each for _, each in members), key=lambda each: each.link.number)
            await self._sequences.update(sequence, partial(_advance, ordered), len(ordered), self.name)

        await each_sequence(passed, keep, self.name, timeout_seconds)
        for arrival in done:
            del self._pending[arrival]

    def _check(self, message: Message, ring: KeyRing) -> _Linked:
        """Return the verified link of a message; raises MessageRejected."""
        value = message.application_property(LINK)
        if value is None or not isinstance(value.payload, str):
            raise MessageRejected("ChainInserted", f"has no link in property {LINK}")
        try:
            payload = verify_statement(value.payload, ring).payload
        except UnknownKey:
            raise
        except MessageRejected as error:
            raise MessageRejected("ChainInserted", f"the link is not genuine: {error.description}") from error
        link = decode_link(payload)
        wanted = self._options.chain_of
        if wanted is not None and link.sequence != wanted and not link.sequence.startswith(f"{wanted}/"):
            problem = f"is number {link.number} of {link.sequence}, which is another chain"
            raise MessageRejected("ChainInserted", problem)
        if not covers(link.bound, self._options.properties):
            problem = f"the link does not cover {', '.join(self._options.properties)}"
            raise MessageRejected("ChainInserted", problem)
        if content_digest(link.bound, message) != link.digest:
            problem = f"the content is not the one that was linked as number {link.number} of {link.sequence}"
            raise MessageRejected("ChainAltered", problem)
        return _Linked(link, hash_of(payload))

    def _judge(self, linked: _Linked, progress: Progress, later: Sequence[int], *, is_new: bool) -> _Linked | None:
        """Return that a message comes next and advance *progress*; None for a redelivery; raises MessageRejected."""
        link, number, sequence = linked.link, linked.link.number, linked.link.sequence
        if number <= progress.number:
            known = progress.hash_at(number)
            if known is None:
                problem = f"number {number} of {sequence} comes after {progress.number} and is no longer remembered"
                raise MessageRejected("ChainReordered", problem)
            if known != linked.hash:
                problem = f"number {number} of {sequence} came before, with other content"
                raise MessageRejected("ChainAltered", problem)
            return None
        follows = number == progress.number + 1 and link.previous == progress.hash
        begins = not follows and (
            self._options.accept.get(sequence) == number
            or (self._options.begin == "any" and is_new and progress.number == 0)
        )
        if begins:
            progress.skip_to(number, link.previous)
        elif number > progress.number + 1:
            _refuse_gap(link, progress.number + 1, later)
        elif not follows:
            problem = f"number {number} of {sequence} was linked to another number {number - 1} than the one that came"
            raise MessageRejected("ChainAltered", problem)
        progress.append(linked.identity, linked.hash)
        return linked._replace(begins=begins)

    def _is_withheld(self, linked: _Linked, confirmed: Progress) -> bool:
        """Return whether to withhold a redelivery: another copy was passed on for certain."""
        return (
            self._options.duplicates == "withhold"
            and linked.link.number <= confirmed.number
            and confirmed.number_of(linked.identity) is None
        )

    def _note(self, messages: Sequence[Message], passed: Mapping[int, _Linked]) -> None:
        """Remember the messages that count once they are sent, in place of the entries of an earlier delivery."""
        for message in messages:
            self._pending.pop(message.arrival.key or message.arrival, None)
        for index, each in passed.items():
            arrival = messages[index].arrival
            self._pending.setdefault(arrival.key or arrival, []).append(each)
        while len(self._pending) > _MOST_PENDING:
            self._pending.popitem(last=False)

    def _strip_link(self, message: Message) -> Message:
        if not self._options.remove:
            return message
        unlinked = message.copy()
        unlinked.set_properties({LINK: None})
        return unlinked


def _advance(passed: Sequence[_Linked], progress: Progress) -> None:
    """Advance the state of a sequence by the messages that were passed on, as far as they follow each other."""
    for each in passed:
        link = each.link
        if each.begins and link.number > progress.number:
            progress.skip_to(link.number, link.previous)
        if link.number == progress.number + 1 and link.previous == progress.hash:
            progress.append(each.identity, each.hash)


def _refuse_gap(link: Link, first: int, later: Sequence[int]) -> None:
    """Raise MessageRejected for a link that came before the numbers from *first*."""
    missing = set(range(first, link.number)) if link.number - first <= len(later) else {0}
    numbers = f"number {first}" if link.number == first + 1 else f"numbers {first} to {link.number - 1}"
    if missing <= set(later):
        raise MessageRejected("ChainReordered", f"number {link.number} of {link.sequence} comes before {numbers}")
    problem = f"{numbers} of {link.sequence} {'is' if link.number == first + 1 else 'are'} missing before {link.number}"
    raise MessageRejected("ChainMissing", problem)
