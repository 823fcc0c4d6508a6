"""The interfaces between the pipeline and outputs, settlement, editors, journals and telemetry."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from shared.errors import BuswayError, MessageRejected, Problem
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message


class Outcome(StrEnum):
    """The result for a message; every message of a batch has exactly one."""

    SENT = "sent"
    FILTERED = "filtered"
    LOOPED = "looped"
    EXPIRED = "expired"
    REJECTED = "rejected"
    RETRY = "retry"


class Outgoing(Struct, frozen=True, gc=False):
    """An encoded message, and the fields that the envelope of a batch repeats."""

    content: bytes
    message_id: str | None
    session_id: str | None
    partition_key: str | None
    partition: str | None = None
    """The partition of an event hub to send it to, whatever its key says."""
    time_to_live: int | None = None
    """For a target whose content is a text: the milliseconds that the message may live there."""
    scheduled_time: int | None = None
    """Likewise: when it may be received first, in milliseconds since 1970 UTC."""

    @property
    def order_key(self) -> str | None:
        """The session id, also an empty one, or the partition key: messages with the same one keep their order."""
        return self.session_id if self.session_id is not None else self.partition_key or None


class Output(Protocol):
    """One connection that messages are sent to."""

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """
        Send *messages* to *entity* in their order and return for each the error, or None if accepted.

        Several calls may be under way at once; between them there is no order.
        After TargetUnavailable or TargetRefused, no later message of the call that must keep its order with this one is
        sent, and all of them get that error: in Service Bus all, or if they go one by one those of the same session or
        partition key; in Event Hubs those of the same partition key or named partition. A MessageRejected concerns its
        message alone. Raises nothing.
        """
        ...

    async def close(self) -> None:
        """Close what is open; for tests and tools, because the Functions worker does not announce its end to an app."""
        ...


class Settlement(Protocol):
    """
    Renews and settles what the host has delivered, through the host: over the link that holds it.

    Shape:  a token is the 16 bytes that the trigger hands over before the message.
    Raises: LockLost when the source has released the lock, TargetUnavailable when an attempt may help, TargetRefused
            when none will: the host has no such service, or does not hold the message or session.
    """

    async def renew(self, token: bytes, *, timeout_seconds: float) -> None:
        """Renew the lock of a message without a session."""
        ...

    async def complete(self, token: bytes, *, timeout_seconds: float) -> None:
        """Remove a message from its source."""
        ...

    async def abandon(self, token: bytes, *, timeout_seconds: float) -> None:
        """Give a message back to its source, with one more delivery counted."""
        ...

    async def dead_letter(self, token: bytes, reason: str, description: str, *, timeout_seconds: float) -> None:
        """Move a message to the dead-letter queue of its source."""
        ...


class HeldSession(Protocol):
    """A session of which an invocation has messages; raises as `Settlement`."""

    locked_until: int | None
    """The end of its lock when the invocation began, in milliseconds since 1970 UTC, as far as the host said it."""

    async def renew(self, *, timeout_seconds: float) -> int:
        """Renew the lock of the session; return its new end, in milliseconds since 1970 UTC."""
        ...

    async def release(self, *, timeout_seconds: float) -> None:
        """Let the host give the session back once the invocation has ended."""
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
    """The answer of an editor that filters a message, with the reason for the journal."""

    reason: str


class Editor(Protocol):
    """A step that changes, filters or splits a message without I/O; it keeps id, ordering key and arrival."""

    name: str

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what replaces *message*, nothing to filter it; raises only MessageRejected."""
        ...


class Joined(NamedTuple):
    """The answer of an editor that puts a message into another one of the batch, whose result it shares."""

    leader: int
    """Index of the other one among the messages that the editor was given; that one is not joined itself."""
    outcome: Outcome = Outcome.SENT
    """Its outcome if the other one is sent: FILTERED, with the reason, if it need not be sent itself."""
    reason: str | None = None


class Postponed(NamedTuple):
    """
    The answer of an editor for a message that would make the batch too large.

    It and all messages behind it wait until those before it are sent, and are then edited again; so the first one that
    an editor was given is never answered with it.
    """


BATCH_BYTES = 64 * 2**20
"""The bytes that the messages of a batch may take together while they are edited and sent."""

type EditedTogether = Sequence[Message] | Withheld | Joined | Postponed | MessageRejected
"""The answer for one message: what replaces it, or why it is filtered, what it is joined to, or what is wrong."""


@runtime_checkable
class BatchEditor(Protocol):
    """
    A step that is given all messages of a batch, so that it may join them, or ask a store once for all of them.

    Like an `Editor` it keeps id, ordering key and arrival; what several messages are joined in has an id of its own.

    In a dry run (`TaskFacts.dry_run`) it edits as usual, writes nothing that remains, and `settled` is not called.
    """

    name: str
    joins: bool
    """Whether it may answer Joined; it is then not given what an earlier delivery of the batch has sent."""

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """
        Return the answer for each message, in their order; the messages that it was given stay unchanged.

        Raises only TargetUnavailable or TargetRefused, if what it asks cannot answer; it is then called again with the
        same messages. One that joins is also called again without messages of which it has rejected a part.
        """
        ...

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """
        Record the outcomes of messages that it was given, before the source is settled.

        Shape:  one for each message or part; the same message may come more than once, as deliveries do.
        Raises: TargetUnavailable or TargetRefused if it cannot; it is then called again.
        """
        ...


# A batch has as many Imprints, Entries and Records as messages. Reading a field of a NamedTuple takes three times as
# long, and so does making a dataclass with a dozen fields.
class Imprint(Struct, gc=False):
    """
    What a journal keeps of a message's content.

    Units: expires_at is milliseconds since 1970 UTC; attempt counts deliveries from 1; digests are raw bytes.
    """

    body_digest: bytes
    body_size: int
    property_digest: bytes | None
    """None if the message cannot be read; the body's digest is then that of all its bytes."""
    message_id: str | None
    order_key: str | None
    """The session, without one the partition key."""
    expires_at: int | None
    attempt: int | None
    hops: Sequence[str]
    """The sites that it visited before this one."""
    properties: bytes = b""
    """This section as it was encoded, and the next two."""
    application_properties: bytes = b""
    body: bytes = b""
    dead_letter_reason: str | None = None
    """The reason that a dead letter has, from its service or from a receiver."""


class Entry(Struct, gc=False):
    """A message that was received, for the journal."""

    arrival: Arrival
    imprint: Imprint
    parts: int = 1
    """The number of parts that it becomes, each with its own outcome."""


class Record(Struct, gc=False):
    """One decision for the journal; the reason describes why a message is not sent."""

    task: str
    arrival: Arrival
    message_id: str | None
    outcome: Outcome
    target: str | None
    reason: str | None
    stage: str | None = None
    """The stage of the line that ended it."""
    order_key: str | None = None
    part: int | None = None
    """Its number among the parts of its message, from 0."""
    is_remembered: bool = False
    """Its outcome is that of an earlier delivery; nothing was sent now."""
    arrived: Imprint | None = None
    """As it was received."""
    departed: Imprint | None = None
    """As it was to be sent, the same object if nothing had changed; None if nothing was to be sent."""
    is_joined: bool = False
    """It was sent inside another message, or as another copy of it, and has no copy of its own at the target."""
    is_handed_over: bool = False
    """It was given to the host, which sends it after the function has returned: its target may not have it."""
    identity: bytes | None = None
    """Of a copy or part with a result that holds at every delivery: what another instance recognizes it by."""


type Flush = Callable[[], Awaitable[None]]
"""Writes to a journal; raises TargetUnavailable or TargetRefused if a required record cannot be kept."""


class Recorded(NamedTuple):
    """Results that a journal has, by the identities of copies and parts, and why it may have more, if it may."""

    results: Mapping[bytes, Outcome]
    problem: str | None = None


class Journal(Protocol):
    """
    The record of what was received, before anything is sent, and of the outcomes, before the source is settled.

    Both are encoded once and written until it succeeds: the store can recognize by the bytes what an attempt whose
    answer was lost has written.
    """

    def arriving(self, message: Message) -> Imprint | None:
        """Return the imprint of a message just received, None if the journal does not keep it."""
        ...

    def unreadable(self, content: bytes) -> Imprint | None:
        """Return the imprint of received bytes that are not a message."""
        ...

    def departing(self, message: Message, arrived: Imprint) -> Imprint:
        """Return the imprint of a message to be sent, *arrived* itself if nothing has changed."""
        ...

    def received(self, entries: Sequence[Entry], batch_id: int) -> Flush:
        """Return a writer of what was received with the batch *batch_id*."""
        ...

    def decided(self, records: Sequence[Record], batch_id: int) -> Flush:
        """Return a writer of the outcomes of the batch *batch_id*."""
        ...

    async def recorded(self, since: datetime, now: datetime, timeout_seconds: float) -> Recorded:
        """Return the results of copies and parts from *since* on that have come on record since the last call."""
        ...


class ReportedMessage(Protocol):
    """One message of a finished batch, or one part of it."""

    @property
    def content(self) -> bytes:
        """The message as the host handed it over."""
        ...

    @property
    def arrival(self) -> Arrival:
        """What the service reported with it; only the origin if the message cannot be read."""
        ...

    @property
    def outcome(self) -> Outcome | None:
        """The outcome; None or RETRY if it stays at the source."""
        ...

    @property
    def target(self) -> object | None:
        """The target; its text is the target's name."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it was not sent."""
        ...

    @property
    def outgoing(self) -> Outgoing | None:
        """What was to be sent; None if it was withheld, or accepted in an earlier delivery of the batch."""
        ...


class BatchReport(NamedTuple):
    """What is known of a finished batch."""

    origin: Origin
    size: int
    """Messages that the host handed over."""
    messages: Sequence[ReportedMessage]
    started: datetime
    seconds: float
    retries: int
    """Attempts to send after the first."""
    error: BuswayError | None
    """The error that keeps the batch at its source, None if it is settled."""
    heartbeats: Sequence[ReportedMessage] = ()
    """Those of the batch; neither in the size nor among the messages."""

    @property
    def has_only_heartbeats(self) -> bool:
        """Whether there is nothing to measure: heartbeats alone, and no error."""
        return not self.size and self.error is None


class Telemetry(Protocol):
    """Receives a report for each batch of one task."""

    def in_hand(self, size: int, oldest: int | None) -> AbstractContextManager[None]:
        """Return a context for a delivery of *size* messages; *oldest* is the first enqueued time, in milliseconds."""
        ...

    def batch(self, report: BatchReport) -> None:
        """Record a finished batch; raises nothing, waits for nothing and changes nothing."""
        ...

    def unwritten(self, records: int) -> None:
        """Record that a number of *records* of the task's journal could not be written and are lost."""
        ...

    def outage(self, place: str, error: BuswayError | None) -> None:
        """Record that *place* (a target) fails with an error, or with another one now; None: it has recovered."""
        ...


class NightTelemetry(Protocol):
    """Receives the findings of the nightly reconciliation."""

    def finding(self, task: str, verdict: str, count: int) -> None:
        """Record that *count* messages of *task* have a verdict that a person has to look at."""
        ...

    def night(self, verdict: str) -> None:
        """Record the verdict of a nightly run, or that it has no result."""
        ...


class Measurement(NamedTuple):
    """A value that was measured once: of a gauge, by its name, with its attributes."""

    metric: str
    value: float
    attributes: Mapping[str, str]


class StatusTelemetry(Protocol):
    """Receives what is measured in the status of all tasks."""

    def measured(self, measurements: Sequence[Measurement]) -> None:
        """Record a complete look: what it does not have is unknown."""
        ...


class LossTelemetry(Protocol):
    """Receives the losses that are found within minutes, and those that the reconciliation of an hour finds first."""

    def lost(self, task: str, count: int) -> None:
        """Record that *count* messages of *task* are lost: no record, or no outcome."""
        ...
