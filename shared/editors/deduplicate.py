"""The deduplicate editor: of several messages with the same id, only one is sent."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from enum import Enum, auto
from hashlib import blake2b
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shared.amqp.codec import encode
from shared.amqp.values import Value
from shared.editors.options import AS_WRITTEN, Step, Strict, TaskFacts
from shared.editors.state.sent_ids import DIGEST_SIZE, OwnIds, SharedIds
from shared.editors.state.store import ContainerName, Store
from shared.editors.validate import PropertyName
from shared.errors import MessageRejected
from shared.message.arrival import Arrival, Key
from shared.message.message import Message
from shared.message.rule_properties import SYSTEM, RuleProperties
from shared.protocols import EditedTogether, Joined, Outcome, Withheld
from shared.rules import SYSTEM_PROPERTIES
from shared.time_limit import DEFAULT_SECONDS, TimeLimit

# Messages that are not settled yet; a forgotten one may be sent twice at worst.
_MOST_UNDECIDED = 100_000


class DeduplicateStore(Store):
    """A container of a storage account, for the ids of messages that have been sent."""

    container: ContainerName = "busway-deduplicate"
    """Container; it is created if it is missing."""


class DeduplicateOptions(Strict):
    """The definition of an id, and where and how long it is remembered."""

    by: PropertyName = "sys.MessageId"
    """The id: an application property, in any case, or a broker property as sys.MessageId."""
    per_session: bool = False
    """Whether the same id in another session is another message."""
    window: Annotated[timedelta, Field(strict=False, gt=timedelta(), le=timedelta(days=7)), AS_WRITTEN]
    """How long an id is remembered after its message was sent; P7D at most."""
    max_count: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Largest number of ids that are remembered; the oldest are forgotten first."""
    missing: Literal["pass", "reject"] = "pass"
    """What happens to a message without an id."""
    store: Literal["memory"] | DeduplicateStore
    """`memory`, which each instance has for itself until it stops, or a storage account, which all instances share."""


class DeduplicateStep(Step):
    """
    Withholds a message if one with the same id was sent before.

    An id is remembered when the target has accepted its message, not earlier: after a failure a message may be sent
    twice, but none is lost. If one delivery has two messages with the
    same id, the second one is withheld if the first is sent, and rejected if the first is rejected. Two messages that
    are processed at the same time in two deliveries are both sent. Put this editor before those that change the id.
    """

    keeps_properties: ClassVar[bool] = True
    options: DeduplicateOptions = Field(alias="deduplicate")

    def editor(self, task: TaskFacts, /) -> "Deduplicate":
        """Return the editor with these options."""
        options = self.options
        if options.store == "memory":
            return Deduplicate(options, OwnIds(options.window, options.max_count, task.clock), task.edit_seconds)
        blobs = options.store.open(task, "deduplicate")
        ids = SharedIds(blobs, task.name, options.window, options.max_count, task.clock)
        return Deduplicate(options, ids, task.edit_seconds)


class _Fate(Enum):
    """The result for a message, or a part of one, that the editor did not pass on."""

    REJECTED = auto()
    WITHHELD = auto()
    JOINED = auto()


type _Parts = list[bytes | _Fate | None]
"""The result of each part of a received message; for one that went on the digest of its id, None without an id."""


class Deduplicate:
    """Lets through the first message of each id."""

    name = "deduplicate"
    joins = True

    def __init__(self, options: DeduplicateOptions, ids: OwnIds, edit_seconds: float = DEFAULT_SECONDS) -> None:
        """Compare messages by *options*, and remember ids in *ids*; each message may take *edit_seconds*."""
        self._time_limit = TimeLimit(edit_seconds)
        self._ids = ids
        self._by = options.by
        self._per_session = options.per_session
        self._rejects = options.missing == "reject"
        lower = options.by.lower()
        is_system = lower.startswith(SYSTEM)
        name = SYSTEM_PROPERTIES[lower.removeprefix(SYSTEM)].name if is_system else lower
        self._is_message_id = is_system and name == "MessageId"
        # Ids from different properties in one store are different ids.
        self._prefix = f"{name}\0{is_system}\0{self._per_session}\0".encode()
        self._undecided: OrderedDict[Key, _Parts] = OrderedDict()

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return which messages continue, and which share the outcome of an earlier one."""
        await self._ids.refresh(timeout_seconds)
        firsts: dict[bytes, int] = {}
        parts_of: dict[Arrival, _Parts] = {}
        results: list[EditedTogether] = []
        digests = await self._time_limit.each(self._digest, messages)
        for index, (message, digest) in enumerate(zip(messages, digests, strict=True)):
            parts = parts_of.setdefault(message.arrival, [])
            if isinstance(digest, MessageRejected):
                results.append(digest)
                parts.append(_Fate.REJECTED)
            elif digest is not None and self._ids.has(digest):
                results.append(Withheld(f"a message with this {self._by} was sent before"))
                parts.append(_Fate.WITHHELD)
            elif digest is not None and firsts.setdefault(digest, index) != index:
                problem = f"a message with this {self._by} is in the same delivery"
                results.append(Joined(firsts[digest], Outcome.FILTERED, problem))
                parts.append(_Fate.JOINED)
            else:
                results.append((message,))
                parts.append(digest)
        self._note(parts_of)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Remember the ids of sent messages; those of parts once all parts that continued were sent."""
        sent: set[bytes] = set()
        whole: list[Key] = []
        split: dict[Key, list[Outcome]] = {}
        for arrival, outcome in outcomes:
            key = arrival.key
            parts = None if key is None else self._undecided.get(key)
            if key is None or parts is None:
                continue
            if len(parts) > 1:
                split.setdefault(key, []).append(outcome)
                continue
            whole.append(key)
            digest = parts[0]
            if outcome is Outcome.SENT and isinstance(digest, bytes):
                sent.add(digest)
        for key, ended in split.items():
            parts = self._undecided[key]
            digests = [part for part in parts if not isinstance(part, _Fate)]
            # Outcomes do not name their part. A joined part may have gone on in a later delivery.
            if ended.count(Outcome.SENT) == len(digests) and ended.count(Outcome.FILTERED) == parts.count(_Fate.JOINED):
                sent.update(digest for digest in digests if digest is not None and not self._ids.has(digest))
        if sent:
            await self._ids.remember(sent, timeout_seconds)
        for key in whole:
            self._undecided.pop(key, None)

    def _note(self, parts_of: dict[Arrival, _Parts]) -> None:
        undecided = self._undecided
        for arrival, parts in parts_of.items():
            key = arrival.key
            if key is None:
                continue  # it cannot be identified when it is settled
            before = undecided.setdefault(key, parts)
            if before is not parts:
                undecided.move_to_end(key)
                # Parts that were sent are not delivered again.
                undecided[key] = parts if len(parts) >= len(before) else before
        while len(undecided) > max(_MOST_UNDECIDED, len(parts_of)):
            undecided.popitem(last=False)

    def _digest(self, message: Message) -> bytes | None:
        """Return the digest of the id, None without an id; raises MessageRejected."""
        identity = self._identity(message)
        if identity is None:
            if self._rejects:
                raise MessageRejected("IdMissing", f"has no {self._by}, which identifies duplicates")
            return None
        session = (message.session_id or "").encode() if self._per_session else b""
        content = b"%b%d:%b%b" % (self._prefix, len(identity), identity, session)
        return blake2b(content, digest_size=DIGEST_SIZE).digest()

    def _identity(self, message: Message) -> bytes | None:
        value = message.message_id if self._is_message_id else RuleProperties(message).named(self._by)
        return None if value is None or value.payload is None else _plain(value)


def _plain(value: Value) -> bytes:
    """Return the same bytes for the same text or number, regardless of its encoding."""
    if isinstance(value.payload, str):
        return b"s" + value.payload.encode()
    if isinstance(value.payload, int) and not isinstance(value.payload, bool):
        return b"i%d" % value.payload
    return b"v" + encode(value)
