"""Incoming messages of a queue or topic: duplicate detection and scheduled messages."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from busway_broker import errors
from busway_broker.config import QueueConfig, TopicConfig
from busway_broker.core.content import NULL, Content
from busway_broker.core.home import Home, scheduled_path
from busway_broker.core.message import State, StoredMessage
from busway_broker.core.sequence_numbers import SequenceNumbers
from busway_broker.core.times import in_milliseconds, milliseconds
from busway_broker.core.usage import ReportedCount, taken
from busway_broker.errors import Refusal

_SHOWN_BITS = 0xFFFFFFFFFFFF


class IncomingMessages:
    """
    Messages on their way into a queue or topic.

    Duplicates (same message id within the window) are accepted and dropped. A scheduled message gets a sequence number
    at once and another one when it is enqueued.
    Source: Microsoft Learn, "Duplicate message detection", "Message sequencing and time-stamps".
    """

    def __init__(
        self,
        config: QueueConfig | TopicConfig,
        home: Home,
        numbers: SequenceNumbers,
        enqueue: Callable[[Content, int], None],
    ) -> None:
        """Pass due messages to *enqueue* (content, hops)."""
        self._clock = home.clock
        self._timers = home.timers
        self.numbers = numbers
        self._enqueue = enqueue
        self.reconfigure(config)
        self.history: dict[bytes, int] = {}
        """The message ids for duplicate detection with their arrival times, oldest first."""
        self.scheduled: dict[int, StoredMessage] = {}
        self.reported = ReportedCount(self.scheduled, in_milliseconds(home.config.counts_lag))
        self.size = 0
        self.recorder = home.recorder
        self.path = scheduled_path(config.name)

    def reconfigure(self, config: QueueConfig | TopicConfig) -> None:
        """Detect duplicates within the window of another configuration from now on."""
        window = in_milliseconds(config.duplicate_detection_history_time_window)
        self._duplicate_window = window if config.requires_duplicate_detection else None

    def accept(self, content: Content, hops: int = 0) -> int | None:
        """Accept a message that *hops* entities have forwarded; return its sequence number if it is scheduled."""
        if self._duplicate_window is None and content.scheduled_enqueue_time is None:
            self._enqueue(content, hops)
            return None
        now = milliseconds(self._clock)
        if self._duplicate_window is not None and self._is_duplicate(content, now, self._duplicate_window):
            return None
        if content.scheduled_enqueue_time is None or content.scheduled_enqueue_time <= now:
            self._enqueue(content, hops)
            return None
        return self._schedule(content, now)

    def schedule(self, content: Content, number: int | None = None) -> int:
        """Schedule a message, which may be due now, and return its sequence number until then."""
        now = milliseconds(self._clock)
        number = self._schedule(content, now, number)
        if self._duplicate_window is not None and self._is_duplicate(content, now, self._duplicate_window):
            self._forget(number)
        elif _due(self.scheduled[number]) <= now:
            self.advance(now)
        return number

    def _schedule(self, content: Content, now: int, number: int | None = None) -> int:
        if number is None:
            number = self.numbers.assign(content)
        message = StoredMessage(content, number, 0, now, content.time_to_live, state=State.SCHEDULED)
        self.reported.look(now)
        self.scheduled[number] = message
        self.size += taken(content.size)
        self._timers.set(self, _due(message))
        self.recorder.stored(self.path, message)
        return number

    def restore(self, scheduled: Iterable[StoredMessage], seen: Mapping[bytes, int]) -> None:
        """Load the scheduled messages, in order, and the message ids, oldest first, of a stored entity."""
        for message in scheduled:
            self.scheduled[message.sequence_number] = message
            self.size += taken(message.content.size)
            self._timers.set(self, _due(message))
        self.history.update(seen)

    def cancel(self, sequence_numbers: list[int]) -> None:
        """Cancel scheduled messages; Refusal(MESSAGE_NOT_FOUND), and none is cancelled, if one does not exist."""
        for number in sequence_numbers:
            self.check_scheduled(number)
        for number in sequence_numbers:
            self._forget(number)

    def check_scheduled(self, number: int) -> None:
        """Raise Refusal(MESSAGE_NOT_FOUND) unless a scheduled message has this sequence number."""
        if number not in self.scheduled:
            self.reported.lose()
            # As the service shows a number: without its upper bits (Azure/azure-service-bus issue 239).
            text = f"Messages not found. Missing sequence numbers: {number & _SHOWN_BITS}"
            raise Refusal(errors.MESSAGE_NOT_FOUND, text)

    def _forget(self, number: int) -> None:
        self.reported.look(milliseconds(self._clock))
        self.size -= taken(self.scheduled.pop(number).content.size)
        self.recorder.removed(self.path, number)

    def peek(self, from_sequence_number: int) -> Iterator[StoredMessage]:
        """Return the scheduled messages from a sequence number on, in order."""
        # A number may have been reserved before those of others that are scheduled already.
        return (message for number, message in sorted(self.scheduled.items()) if number >= from_sequence_number)

    def _is_duplicate(self, content: Content, now: int, window: int) -> bool:
        """Note the message id; those that have left the window are forgotten, oldest first."""
        stale = [each for each, _ in itertools.takewhile(lambda item: item[1] <= now - window, self.history.items())]
        for message_id in stale:
            del self.history[message_id]
        if stale:
            self.recorder.forgotten(self.path, stale)
        message_id = self.numbers.identity(content)
        if message_id in self.history:
            return True
        if message_id == NULL:
            return False
        self.history[message_id] = now
        self.recorder.seen(self.path, message_id, now)
        return False

    def advance(self, now: int) -> int | None:
        """Enqueue the messages that are due, in the order of their times; see `Timed`."""
        due = [message for message in self.scheduled.values() if _due(message) <= now]
        for message in sorted(due, key=_due):
            self._forget(message.sequence_number)
            self._enqueue(message.content, 0)
        return min(map(_due, self.scheduled.values()), default=None)


def _due(message: StoredMessage) -> int:
    return message.content.scheduled_enqueue_time or 0
