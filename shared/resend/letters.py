"""One message that was given up: why, by what, and what it was before."""

from datetime import UTC, datetime

from shared.amqp.values import Value
from shared.errors import MessageRejected
from shared.line import rejection
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import entity_that_gave_up

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
NO_REASON = "(no reason)"
UNREADABLE = "(unreadable message)"

_REJECT_STAMPS = (
    *(rejection.REASON, rejection.DESCRIPTION, rejection.STAGE, rejection.TASK, rejection.SOURCE, rejection.SEQUENCE),
    *(rejection.PART, rejection.PARTS),
)
# Only these four together make a task send one part of a message instead of all (`shared.line.rejection`).
_NEEDED_FOR_A_PART = frozenset((rejection.PART, rejection.PARTS, rejection.TASK, rejection.SOURCE))
_PARTITIONS = "/Partitions/"


class Letter:
    """A message as a dead-letter queue or an entity with rejected messages has it."""

    def __init__(self, content: bytes, origin: Origin) -> None:
        """Read the encoded *content*; one that is not a message has no `message`."""
        self.content = content
        self.origin = origin
        self.message: Message | None = None
        self._texts: dict[str, str] = {}
        try:
            self.message = Message.received(content, origin)
            self.session_id = self.message.session_id
            self.message_id = None if self.message.message_id is None else str(self.message.message_id.payload)
            self._texts = {
                name: value.payload
                for name in (REASON, DESCRIPTION, *_REJECT_STAMPS)
                if (value := self.message.application_property(name)) is not None and isinstance(value.payload, str)
            }
        except MessageRejected:
            self.session_id = self.message_id = None
        arrival = None if self.message is None else self.message.arrival
        self.number = None if arrival is None else arrival.sequence_number
        self.enqueued_time = None if arrival is None else arrival.enqueued_time

    @property
    def key(self) -> str | None:
        """What identifies it in its entity, also after the entity was deleted and created; None if unreadable."""
        return None if self.number is None else f"{self.number}/{self.enqueued_time}"

    @property
    def reason(self) -> str:
        """Why it was given up, for people."""
        if self.message is None:
            return UNREADABLE
        return self._texts.get(rejection.REASON) or self._texts.get(REASON) or NO_REASON

    @property
    def description(self) -> str | None:
        """The sentence beside the reason."""
        return self._texts.get(rejection.DESCRIPTION) or self._texts.get(DESCRIPTION)

    @property
    def task(self) -> str | None:
        """The task that rejected it."""
        return self._texts.get(rejection.TASK)

    @property
    def source(self) -> tuple[str, str] | None:
        """Site and path of the entity that gave it up or that a task had received it from; None if unknown."""
        place = self._texts.get(rejection.SOURCE)
        if place is not None:
            site, _, path = place.partition(_PARTITIONS)[0].partition("/")
            return (site, path) if path else None
        entity = None if self.message is None else entity_that_gave_up(self.message.arrival)
        return None if entity is None else (self.origin.site, entity)

    @property
    def is_wrapped(self) -> bool:
        """Whether the message is the body of the one that is there."""
        return (
            self.message is not None
            and rejection.REASON in self._texts
            and self.message.content_type == rejection.WRAPPED_CONTENT_TYPE
        )

    def unwrapped(self) -> Message:
        """Return the message as it was before it was given up; raises MessageRejected if it cannot be read."""
        if self.message is None:
            raise MessageRejected("MalformedMessage", "its sections cannot be read")
        made = self.message.copy()
        stamps = _stamps_to_remove(self._texts)
        if self.is_wrapped:
            made = Message.received(self.message.body or b"", self.origin)
            made.arrival = self.message.arrival
            stamps = {}
        made.set_properties({**stamps, **_service_properties(made)})
        return made

    def age(self, now: datetime) -> float | None:
        """Return the seconds since it was enqueued."""
        return None if self.enqueued_time is None else max(now.timestamp() - self.enqueued_time / 1000, 0.0)

    @property
    def enqueued(self) -> str:
        """The time at which it was enqueued, for people."""
        if self.enqueued_time is None:
            return "(unknown)"
        try:
            return datetime.fromtimestamp(self.enqueued_time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        except (ValueError, OverflowError, OSError):
            return f"{self.enqueued_time} ms"


def _stamps_to_remove(texts: dict[str, str]) -> dict[str, Value | None]:
    kept = _NEEDED_FOR_A_PART if rejection.PART in texts else frozenset()
    return {name: None for name in _REJECT_STAMPS if name in texts and name not in kept}


def _service_properties(message: Message) -> dict[str, Value | None]:
    """Return the properties of the service to remove: text, or null for a reason that was not given."""
    found = {name: message.application_property(name) for name in (REASON, DESCRIPTION)}
    # One of another type is the application's own.
    return {name: None for name, value in found.items() if value is not None and isinstance(value.payload, str | None)}
