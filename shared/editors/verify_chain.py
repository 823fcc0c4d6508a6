"""
The verify-chain editor: what is missing, reordered, altered or inserted in a chained sequence does not pass unnoticed.

1. A sequence stands where the last message stood that was carried on; that is kept once the target has it, so that
   nothing is taken for a repetition that never arrived.
2. The next message must have the next number and the hash of the last link. What has not is rejected with the reason,
   and the sequence stands where it stood: it goes on when the right message comes, or when `accept` says with which
   number it is to go on.
3. What was passed on before comes again at times, with the same number and hash: no violation.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field

from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import MESSAGE_ID, BoundNames, covers
from shared.editors.protection.key_names import KeyName, check_key
from shared.editors.protection.links import (
    LINK,
    WINDOW,
    Link,
    Progress,
    Sequences,
    StoreOptions,
    answered_within,
    content_digest,
    decoded,
    each_of,
    grouped,
    hash_of,
    identities,
)
from shared.errors import MessageRejected, TargetUnavailable
from shared.message.message import Arrival, Message
from shared.protocols import BatchEditor, EditedTogether, Outcome, Withheld
from shared.stores.documents import Changed

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing, KeyRings

_ATTEMPTS = 5
# Of messages whose batch was not carried to its end; the next delivery replaces what is known of them.
_MOST_PENDING = 100_000


class VerifyChainOptions(Strict):
    """Which links a message must have."""

    key: KeyName
    """Secret with the keys: a JSON Web Key, or a set of them; a link names the one by its `kid`."""
    chain_of: Annotated[str, Field(min_length=1)] | None = None
    """Site and entity, as `west/orders`, where the messages must have been chained; anywhere if not given."""
    properties: BoundNames = (MESSAGE_ID,)
    """Properties that a link must be over; all that it is over are compared in any case."""
    store: StoreOptions
    """Where it is kept how far each sequence has come: a place of its own, or the same as that of `chain`."""
    begin: Literal["first", "any"] = "first"
    """Whether a sequence that is new here must begin with number 1."""
    duplicates: Literal["pass", "withhold"] = "pass"
    """What becomes of a message that was passed on before."""
    accept: Mapping[str, Annotated[int, Field(ge=1)]] = Field(default={}, examples=[{"west/orders/4711": 12}])
    """An operator's decisions: sequences, as links call them, with the number at which each is to go on after a gap."""
    single_instance: bool = False
    """That the app never runs as more than one instance, so that the order of a queue without sessions is kept."""
    remove: bool = False
    """Whether the link is taken off what passes."""


class VerifyChainStep(Step):
    """
    Lets through the messages of a chained sequence that follow one another as they were linked by `chain`.

    The others are rejected: ChainMissing, ChainReordered, ChainAltered or ChainInserted, with the numbers.
    """

    keeps_properties: ClassVar[bool] = True
    options: VerifyChainOptions = Field(alias="verify-chain")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or takes off."""
        return frozenset((LINK.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that does what the options say."""
        from shared.editors.protection.keys import KeyRings  # noqa: PLC0415 - tasks without keys do not pay for the library

        check_key(task, "verify-chain.key", self.options.key)
        documents = self.options.store.open(task, "verify-chain.store")
        rings = KeyRings(self.options.key, task.secrets)
        return VerifyChain(self.options, rings, Sequences(documents, f"verify-chain/{task.name}"))


class _Linked(NamedTuple):
    """A message's link that is known to be genuine, and to be about this message."""

    link: Link
    hash: str
    identity: str


class _Passed(NamedTuple):
    """That a message was let through, which counts when it has been carried on."""

    linked: _Linked
    begins: bool
    """Whether the sequence goes on with it, whatever came before."""


class VerifyChain:
    """Lets through what follows what was carried on before."""

    name = "verify-chain"
    joins = False

    def __init__(self, options: VerifyChainOptions, rings: "KeyRings", sequences: Sequences) -> None:
        """Verify with the keys of *rings*."""
        from shared.editors.protection.jws import verified_statement  # noqa: PLC0415 - see above

        self._options = options
        self._rings = rings
        self._verified = verified_statement
        self._sequences = sequences
        self._pending: OrderedDict[Arrival, list[_Passed]] = OrderedDict()

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return each message, withheld or rejected where it is none that follows; raises what keeps the store away."""
        pairs = list(zip(messages, identities(messages), strict=True))
        checked = await self._rings.each(pairs, self._checked, timeout_seconds=timeout_seconds)
        results: list[EditedTogether] = [
            self._told(each) if isinstance(each, MessageRejected) else (self._unlinked(message),)
            for message, each in zip(messages, checked, strict=True)
        ]
        passed: dict[int, _Passed] = {}

        async def judge(sequence: str, members: list[tuple[int, _Linked]]) -> None:
            progress, version = await self._sequences.read(sequence)
            confirmed = progress.copy()
            later = [linked.link.number for _, linked in members]
            for index, linked in members:
                later.remove(linked.link.number)
                try:
                    passes = self._judged(linked, progress, later, is_new=version is None)
                except MessageRejected as error:
                    results[index] = self._told(error)
                    continue
                if passes is not None:
                    passed[index] = passes
                elif self._is_withheld(linked, confirmed):
                    told = f"number {linked.link.number} of {sequence} was passed on before"
                    results[index] = Withheld(f"{self.name}: {told}")

        linked = {index: (each.link.sequence, each) for index, each in enumerate(checked) if isinstance(each, _Linked)}
        with answered_within(self.name, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                await each_of(grouped(linked), judge)
        self._note(messages, passed)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Keep how far the sequences have come with what was carried on; raises what keeps the store away."""
        ended = Counter(arrival for arrival, _ in outcomes)
        # Of one that became several, all of them.
        done = {arrival: self._pending[arrival] for arrival in ended if arrival in self._pending}
        done = {arrival: passed for arrival, passed in done.items() if len(passed) <= ended[arrival]}
        passed = dict(enumerate((each.linked.link.sequence, each) for group in done.values() for each in group))

        async def keep(sequence: str, members: list[tuple[int, _Passed]]) -> None:
            await self._keep(sequence, [each for _, each in members])

        with answered_within(self.name, timeout_seconds):
            async with asyncio.timeout(timeout_seconds):
                await each_of(grouped(passed), keep)
        for arrival in done:
            del self._pending[arrival]

    def _checked(self, pair: tuple[Message, str | None], ring: "KeyRing") -> _Linked:
        """Return the link of a message that is genuine and about this message; raises MessageRejected."""
        from shared.editors.protection.keys import UnknownKey  # noqa: PLC0415 - see above

        message, identity = pair
        value = message.application_property(LINK)
        if value is None or not isinstance(value.payload, str):
            raise MessageRejected("ChainInserted", f"has no link in property {LINK}")
        try:
            payload = self._verified(value.payload, ring).payload
        except UnknownKey:
            raise
        except MessageRejected as error:
            raise MessageRejected("ChainInserted", f"the link is not genuine: {error.description}") from error
        link = decoded(payload)
        wanted = self._options.chain_of
        if wanted is not None and link.sequence != wanted and not link.sequence.startswith(f"{wanted}/"):
            raise MessageRejected(
                "ChainInserted", f"is number {link.number} of {link.sequence}, which is another chain"
            )
        if not covers(link.bound, self._options.properties):
            told = f"the link does not cover {', '.join(self._options.properties)}"
            raise MessageRejected("ChainInserted", told)
        if content_digest(link.bound, message) != link.digest:
            told = f"the content is not the one that was linked as number {link.number} of {link.sequence}"
            raise MessageRejected("ChainAltered", told)
        return _Linked(link, hash_of(payload), identity or "")

    def _judged(self, linked: _Linked, progress: Progress, later: Sequence[int], *, is_new: bool) -> _Passed | None:
        """Return that a message comes next, and let *progress* go on; None for a repetition; raises MessageRejected."""
        link, number, sequence = linked.link, linked.link.number, linked.link.sequence
        if number <= progress.number:
            known = progress.hash_at(number)
            if known is None:
                told = f"number {number} of {sequence} comes after {progress.number} and is no longer remembered"
                raise MessageRejected("ChainReordered", told)
            if known != linked.hash:
                told = f"number {number} of {sequence} came before, with other content"
                raise MessageRejected("ChainAltered", told)
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
            told = f"number {number} of {sequence} was linked to another number {number - 1} than the one that came"
            raise MessageRejected("ChainAltered", told)
        progress.append(linked.identity, linked.hash)
        return _Passed(linked, begins)

    def _is_withheld(self, linked: _Linked, confirmed: Progress) -> bool:
        """Tell whether a repetition need not be carried on: another copy has been, for certain."""
        return (
            self._options.duplicates == "withhold"
            and linked.link.number <= confirmed.number
            and confirmed.number_of(linked.identity) is None
        )

    def _note(self, messages: Sequence[Message], passed: Mapping[int, _Passed]) -> None:
        """Remember what counts once it has been carried on, and forget what an earlier delivery has left of it."""
        for message in messages:
            self._pending.pop(message.arrival, None)
        for index, each in passed.items():
            self._pending.setdefault(messages[index].arrival, []).append(each)
        while len(self._pending) > _MOST_PENDING:
            self._pending.popitem(last=False)

    async def _keep(self, sequence: str, passed: Sequence[_Passed]) -> None:
        async with self._sequences.turn(sequence):
            for _ in range(_ATTEMPTS):
                progress, version = await self._sequences.read(sequence)
                before = progress.number
                for each in sorted(passed, key=lambda each: each.linked.link.number):
                    link = each.linked.link
                    if each.begins and link.number > progress.number:
                        progress.skip_to(link.number, link.previous)
                    if link.number == progress.number + 1 and link.previous == progress.hash:
                        progress.append(each.linked.identity, each.linked.hash)
                if progress.number == before:
                    return
                try:
                    await self._sequences.write(sequence, progress, version, max(WINDOW, 2 * len(passed)))
                except Changed:
                    continue
                return
        raise TargetUnavailable(f"{self.name}: other instances keep writing the same sequence")

    def _unlinked(self, message: Message) -> Message:
        if not self._options.remove:
            return message
        unlinked = message.copy()
        unlinked.set_properties({LINK: None})
        return unlinked

    def _told(self, error: MessageRejected) -> MessageRejected:
        return MessageRejected(error.reason, f"{self.name}: {error.description}")


def _refuse_gap(link: Link, first: int, later: Sequence[int]) -> None:
    """Raise what is wrong with a link before which numbers from *first* on have not come."""
    missing = set(range(first, link.number)) if link.number - first <= len(later) else {0}
    numbers = f"number {first}" if link.number == first + 1 else f"numbers {first} to {link.number - 1}"
    if missing <= set(later):
        raise MessageRejected("ChainReordered", f"number {link.number} of {link.sequence} comes before {numbers}")
    told = f"{numbers} of {link.sequence} {'is' if link.number == first + 1 else 'are'} missing before {link.number}"
    raise MessageRejected("ChainMissing", told)
