"""What the pipeline asks of its siblings, so that it meets none of them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from shared.errors import BuswayError, MessageRejected, Problem
from shared.message.message import Arrival, Message, Origin


class Outcome(StrEnum):
    """What became of a message; every message of a batch has exactly one."""

    SENT = "sent"
    FILTERED = "filtered"
    LOOPED = "looped"
    EXPIRED = "expired"
    REJECTED = "rejected"
    RETRY = "retry"


class Outgoing(NamedTuple):
    """An encoded message and what the envelope of a batch repeats of it."""

    content: bytes
    message_id: str | None
    session_id: str | None
    partition_key: str | None
    partition: str | None = None
    """The partition of a hub that it is to go to, whatever its key says."""


class Output(Protocol):
    """One connection that messages are sent to."""

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """
        Send *messages* to *entity* in their order and return for each what spoke against it, or None once accepted.

        After an error of the world (TargetUnavailable, TargetRefused) no later message of the call that has to keep its
        order with this one is sent, and all of them get that error: in Service Bus all, in Event Hubs those of the same
        partition key or named partition. A MessageRejected concerns its message alone. Raises nothing of its own.
        """
        ...

    async def close(self) -> None:
        """Close what is open; for tests and tools, as the Functions worker tells an app nothing of its end."""
        ...


class Locks(Protocol):
    """
    The locks that the host holds on a batch at its source, reached over a connection of Busway's own.

    Shape:  a token is the 16 bytes that the trigger hands over before the message; the session is that of the batch,
            None where the source has none.
    Raises: LockLost when the service holds the lock no more, TargetUnavailable and TargetRefused when it cannot be
            asked.
    """

    async def renew(self, tokens: Sequence[bytes], session_id: str | None, *, timeout_seconds: float) -> int:
        """Renew the locks and return until when all of them hold, in milliseconds since 1970 UTC."""
        ...

    async def dead_letter(
        self, token: bytes, session_id: str | None, reason: str, description: str, *, timeout_seconds: float
    ) -> None:
        """Move one message to the dead-letter queue of the source."""
        ...


@dataclass(frozen=True, slots=True)
class Secret:
    """A named secret with its version; no repr, error or log line contains the value."""

    name: str
    version: str
    _value: str = field(repr=False)

    def reveal(self) -> str:
        """Return the value, for the client that needs it."""
        return self._value


class Secrets(Protocol):
    """A store of secrets."""

    async def get(self, name: str, *, refresh: bool = False) -> Secret:
        """
        Return a secret, from a cache unless *refresh* asks for the current version.

        Raises TargetUnavailable if the store is unavailable, TargetRefused if the secret is missing or inaccessible.
        """
        ...

    def problem(self, name: str) -> Problem | None:
        """Return what is wrong with the name of a secret as far as it can be checked without a request."""
        ...


class Withheld(NamedTuple):
    """That an editor lets nothing of a message through, and why, for the journal."""

    reason: str


class Editor(Protocol):
    """A step that changes, drops or multiplies a message, without I/O; it leaves id, ordering key and arrival alone."""

    name: str

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what takes the place of *message*; nothing drops it. Raises MessageRejected and nothing else."""
        ...


class Joined(NamedTuple):
    """That a message goes on in what takes the place of another one of its batch, and shares what becomes of that."""

    leader: int
    """Index of the other one in what the editor was given; it is not joined to a third."""
    outcome: Outcome = Outcome.SENT
    """What becomes of it once the other one is sent; FILTERED, with the reason, for one that need not be."""
    reason: str | None = None


type EditedTogether = Sequence[Message] | Withheld | Joined | MessageRejected
"""What takes the place of a message, nothing with a reason, the message it is joined to, or what is wrong with it."""


@runtime_checkable
class BatchEditor(Protocol):
    """
    A step that is given the messages of a batch together, so that it may join them, and ask the world once for all.

    Like an `Editor` it leaves id, ordering key and arrival alone; what several are joined to has an id of its own.

    In a dry run (`TaskFacts.dry_run`) it is asked as ever, writes nothing that outlives it, and is told of no end.
    """

    name: str
    joins: bool
    """Whether it may answer Joined; it is not given what an earlier delivery of the batch has sent, then."""

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """
        Return for each message, in their order, what becomes of it here.

        Raises TargetUnavailable or TargetRefused where what it asks cannot answer, and nothing else: it is then called
        again with the same messages, which it must have left as they were.
        """
        ...

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """
        Take note of what became of messages that it was given, before the source is settled.

        Shape:  one for each message that was edited here; it may come for a message more than once, as deliveries do.
        Raises: TargetUnavailable or TargetRefused where it cannot; it is then called again.
        """
        ...


# This, Entry and Record have slots: to read a field, as is done many times, takes three times as long with a tuple.
@dataclass(slots=True)
class Imprint:
    """
    What a journal keeps of a message's content.

    Units: expires_at is milliseconds since 1970 UTC; attempt counts deliveries from 1; digests are raw bytes.
    """

    body_digest: bytes
    body_size: int
    property_digest: bytes | None
    """None where the message cannot be read, and the body's digest is that of all its bytes."""
    message_id: str | None
    order_key: str | None
    """The session, without one the partition key."""
    expires_at: int | None
    attempt: int | None
    hops: Sequence[str]
    """The sites that it had left before it came to this one."""
    properties: bytes = b""
    """This section as it was encoded, and the next two."""
    application_properties: bytes = b""
    body: bytes = b""


@dataclass(slots=True)
class Entry:
    """A message that was received, for the journal."""

    arrival: Arrival
    imprint: Imprint
    parts: int = 1
    """How many it becomes, each with an outcome of its own."""


@dataclass(slots=True)
class Record:
    """One decision for the journal; the reason is the description of what spoke against the message."""

    task: str
    arrival: Arrival
    message_id: str | None
    outcome: Outcome
    target: str | None
    reason: str | None
    stage: str | None = None
    """The step that spoke against it."""
    order_key: str | None = None
    part: int | None = None
    """Which of those it is that a message was split into."""
    is_remembered: bool = False
    """It was accepted in an earlier delivery of the batch, and was not sent now."""
    arrived: Imprint | None = None
    """As it was received."""
    departed: Imprint | None = None
    """As it was to be sent, the same object where nothing had changed; None where nothing was."""
    is_joined: bool = False
    """It was sent in what took the place of another message, and has no copy of its own."""


type Flush = Callable[[], Awaitable[None]]
"""Writes to a journal; raises TargetUnavailable or TargetRefused where what is required cannot be kept."""


class Journal(Protocol):
    """
    Where it is written what was received, before anything is sent, and what became of it, before the source is settled.

    Both are put into words once and then written as often as it takes: whoever keeps them can tell by the bytes what
    an attempt whose answer was lost has left.
    """

    def arriving(self, message: Message) -> Imprint | None:
        """Return the imprint of a message just received, None where the journal keeps nothing of it."""
        ...

    def unreadable(self, content: bytes) -> Imprint | None:
        """Return the imprint of what was received and is no message."""
        ...

    def departing(self, message: Message, arrived: Imprint) -> Imprint:
        """Return the imprint of a message to be sent, *arrived* itself where nothing that counts has changed."""
        ...

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:
        """Return what writes that these were received with the batch of this number."""
        ...

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:
        """Return what writes what became of the batch of this number."""
        ...


class ReportedMessage(Protocol):
    """One message of a batch at its end, or one that an editor has made of it."""

    @property
    def content(self) -> bytes:
        """The message as the host handed it over."""
        ...

    @property
    def arrival(self) -> Arrival:
        """What the service said of it; of a message that cannot be read, its origin alone."""
        ...

    @property
    def outcome(self) -> Outcome | None:
        """What became of it, None where it has to stay at the source."""
        ...

    @property
    def target(self) -> object | None:
        """Where it went or was to go; its text is the target's name."""
        ...

    @property
    def outgoing(self) -> Outgoing | None:
        """What was to be sent; None where nothing was: withheld, or accepted in an earlier delivery of the batch."""
        ...


class BatchReport(NamedTuple):
    """What is known of a batch when it is over."""

    origin: Origin
    size: int
    """Messages that the host handed over."""
    messages: Sequence[ReportedMessage]
    started: datetime
    seconds: float
    retries: int
    """Attempts to send after the first."""
    error: BuswayError | None
    """What keeps the batch at its source, None once it is settled."""


class Telemetry(Protocol):
    """Who is told of the batches of one task."""

    def batch(self, report: BatchReport) -> None:
        """Take note of a batch that is over; raises nothing, waits for nothing and changes nothing."""
        ...

    def unwritten(self, records: int) -> None:
        """Take note that so many records of the task's journal could not be written and are lost."""
        ...

    def outage(self, place: str, error: BuswayError | None) -> None:
        """Take note of what has come into the way of *place* (a target), or is another thing now; None: it is gone."""
        ...


class NightTelemetry(Protocol):
    """Who is told what the nightly reconciliation found."""

    def finding(self, task: str, verdict: str, count: int) -> None:
        """Take note that so many messages of *task* have a verdict that somebody has to look at."""
        ...

    def night(self, verdict: str) -> None:
        """Take note of what a night came to: a run's verdict in words, or that there is no result."""
        ...
