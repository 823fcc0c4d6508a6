"""Collects in memory what this instance does; the publisher writes it."""

import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from msgspec.structs import replace

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, TargetUnavailable
from shared.printable import printable
from shared.protocols import BatchReport, Outcome, ReportedMessage
from shared.status.report import MOST_REJECTS, MOST_TEXT, HourReport, Minute, Outage, Reject, RouteReport, TaskReport
from shared.status.report import VERSION as REPORT_VERSION
from shared.telemetry import names
from shared.telemetry.names import outcome_of

_MINUTE_MILLISECONDS = 60_000
_RATE_SECONDS = 60.0
# The history is written once a minute, so that a report has the current minute and the one before it.
_MINUTES_REPORTED = 2
_MINUTES_KEPT = 75
_WITHHELD = frozenset((Outcome.FILTERED.value, Outcome.LOOPED.value, Outcome.EXPIRED.value))


class TaskRecorder:
    """
    What one task does in this instance; it implements `shared.protocols.Telemetry`.

    Batches report from the worker's thread while the publisher reads from its own.
    """

    def __init__(self, task: str, clock: Clock | None = None, *, is_hub: bool = False) -> None:
        """Record the batches of *task*; with *is_hub* also how far each partition is settled."""
        self.task = task
        self._clock = clock or SystemClock()
        self._is_hub = is_hub
        self._lock = threading.Lock()
        self._numbers = count()
        self._in_hand: dict[int, tuple[int, int | None]] = {}
        self._outages: dict[str, Outage] = {}
        self._error: tuple[str, int] | None = None
        self._last_batch: int | None = None
        self._rejects: deque[Reject] = deque(maxlen=MOST_REJECTS)
        self._positions: dict[str, int] = {}
        self._minutes: dict[int, Minute] = {}
        self._decided: deque[tuple[float, int]] = deque()
        self._started = self._clock.monotonic()
        self._routes: dict[int, RouteReport] = {}
        self._unwritten = 0
        self.changes = 0
        """Counts up with each change."""

    @contextmanager
    def in_hand(self, size: int, oldest: int | None) -> Iterator[None]:
        """Count *size* messages as in progress, of which the first was enqueued at *oldest*."""
        number = next(self._numbers)
        with self._lock:
            self._in_hand[number] = size, oldest
            self.changes += 1
        try:
            yield
        finally:
            with self._lock:
                del self._in_hand[number]
                self.changes += 1

    def batch(self, report: BatchReport) -> None:
        """Count the messages of a batch by outcome."""
        now = self._now()
        outcomes = Counter(map(outcome_of, report.messages))
        rejected = [
            message
            for message in report.messages
            if message.outcome is Outcome.REJECTED and message.outgoing is not None
        ]
        enqueued = [
            message.arrival.enqueued_time
            for message in report.messages
            if message.outcome is Outcome.SENT
            and message.outgoing is not None
            and message.arrival.enqueued_time is not None
        ]
        added = Minute(
            now // _MINUTE_MILLISECONDS,
            sent=outcomes[Outcome.SENT.value],
            withheld=sum(outcomes[each] for each in _WITHHELD),
            rejected=outcomes[Outcome.REJECTED.value],
            retried=outcomes[Outcome.RETRY.value],
            duplicates=outcomes[names.REMEMBERED],
            # The service's clock may be ahead of this machine's.
            lag=max(now - min(enqueued), 0) if enqueued else None,
        )
        with self._lock:
            self.changes += 1
            if report.error is None:
                self._error = None
                self._move(report)
            elif self._error is None or self._error[0] != _text(report.error):
                self._error = _text(report.error), now
            if report.has_only_heartbeats:
                return
            self._last_batch = now
            before = self._minutes.get(added.minute)
            self._minutes[added.minute] = added if before is None else before.plus(added)
            for old in [each for each in self._minutes if each <= added.minute - _MINUTES_KEPT]:
                del self._minutes[old]
            self._decided.append((self._clock.monotonic(), added.sent + added.withheld + added.rejected))
            self._rejects.extendleft(
                Reject(now, _id_of(message), _reason_of(message)) for message in rejected[-MOST_REJECTS:]
            )

    def unwritten(self, records: int) -> None:
        """Count lost records of the journal."""
        with self._lock:
            self.changes += 1
            self._unwritten += records

    def outage(self, place: str, error: BuswayError | None) -> None:
        """Keep what batches wait for, since it began."""
        with self._lock:
            self.changes += 1
            before = self._outages.pop(place, None)
            if error is not None:
                kind = "unavailable" if isinstance(error, TargetUnavailable) else "refused"
                since = self._now() if before is None else before.since
                self._outages[place] = Outage(printable(place), kind, _text(error), since)  # type: ignore[arg-type] # one of both

    def heartbeat_sent(self, route: int, number: int, error: BuswayError | None) -> None:
        """Keep that a heartbeat was sent to the source, or why not; its *number* is the time in milliseconds."""
        with self._lock:
            self.changes += 1
            known = self._routes.get(route, RouteReport(route))
            first = number if known.first is None else known.first
            self._routes[route] = replace(
                known,
                first=first,
                sent=number if error is None else known.sent,
                unsent=None if error is None else _text(error),
            )

    def heartbeat(self, route: int, sent: int, milliseconds: int | None, refusal: str | None) -> None:
        """Keep the result of a heartbeat that the source has delivered (`shared.line.heartbeats`)."""
        with self._lock:
            self.changes += 1
            known = replace(self._routes.get(route, RouteReport(route)), taken=sent)
            if milliseconds is None:
                self._routes[route] = replace(known, refused=printable(refusal or "")[:MOST_TEXT])
            else:
                self._routes[route] = replace(known, arrived=self._now(), latency=milliseconds, refused=None)

    def route(self, number: int) -> RouteReport:
        """Return what is known of the heartbeats of a route."""
        with self._lock:
            return self._routes.get(number, RouteReport(number))

    def report(self) -> TaskReport | None:
        """Return what is known now, None if this instance has never had a message of the task."""
        with self._lock:
            if not self.changes:
                return None
            now, stopwatch = self._now() // _MINUTE_MILLISECONDS, self._clock.monotonic()
            while self._decided and self._decided[0][0] <= stopwatch - _RATE_SECONDS:
                self._decided.popleft()
            seconds = min(_RATE_SECONDS, max(stopwatch - self._started, 1.0))
            oldest = [time for _, time in self._in_hand.values() if time is not None]
            return TaskReport(
                self.task,
                in_hand=sum(size for size, _ in self._in_hand.values()),
                oldest_in_hand=min(oldest, default=None),
                last_batch=self._last_batch,
                rate=round(sum(number for _, number in self._decided) / seconds, 3),
                outages=list(self._outages.values()),
                error=None if self._error is None else self._error[0],
                error_since=None if self._error is None else self._error[1],
                rejects=list(self._rejects),
                positions=dict(self._positions),
                minutes=[minute for number, minute in self._minutes.items() if number > now - _MINUTES_REPORTED],
                unwritten=self._unwritten,
                heartbeats=[self._routes[route] for route in sorted(self._routes)],
            )

    def minutes(self, first: int, last: int) -> list[Minute]:
        """Return the minutes from *first* to *last* in which there were batches."""
        with self._lock:
            return [minute for number, minute in sorted(self._minutes.items()) if first <= number <= last]

    def _move(self, report: BatchReport) -> None:
        if not self._is_hub or report.origin.partition is None:
            return
        arrivals = [message.arrival for message in (*report.messages, *report.heartbeats)]
        numbers = [arrival.sequence_number for arrival in arrivals if arrival.sequence_number is not None]
        partition = report.origin.partition
        if numbers:
            self._positions[partition] = max(numbers)

    def _now(self) -> int:
        return round(self._clock.now().timestamp() * 1000)


def hour_report(recorders: list[TaskRecorder], hour: int) -> HourReport:
    """Return the minutes of an hour, in hours since 1970, of the tasks that did something in it."""
    minutes = {recorder.task: recorder.minutes(hour * 60, hour * 60 + 59) for recorder in recorders}
    return HourReport(REPORT_VERSION, {task: found for task, found in minutes.items() if found})


def _id_of(message: ReportedMessage) -> str | None:
    identity = None if message.outgoing is None else message.outgoing.message_id
    return None if identity is None else printable(identity)[:MOST_TEXT]


def _reason_of(message: ReportedMessage) -> str:
    return printable(message.reason or "unknown")[:MOST_TEXT]


def _text(error: BuswayError) -> str:
    return printable(str(error))[:MOST_TEXT]
