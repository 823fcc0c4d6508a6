"""
One message that was given up: why, by what, and what it was before.

A task stamps what it rejects, but any producer can write such stamps. So they count only in the `rejects` of a task of
the configuration, and only with the source of such a task. Elsewhere they mean nothing.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from shared.amqp.values import Value
from shared.errors import MessageRejected
from shared.line import rejection
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.metadata import entity_that_gave_up
from shared.resend.places import Place

REASON = "DeadLetterReason"
DESCRIPTION = "DeadLetterErrorDescription"
NO_REASON = "(no reason)"
UNREADABLE = "(unreadable message)"

_REJECT_STAMPS = (
    *(rejection.REASON, rejection.DESCRIPTION, rejection.STAGE, rejection.TASK, rejection.SOURCE, rejection.SEQUENCE),
    *(rejection.PART, rejection.PARTS, rejection.TARGET),
)
_PARTITIONS = "/Partitions/"


class Letter:
    """A message as a dead-letter queue or an entity with rejected messages has it."""

    def __init__(self, content: bytes, origin: Origin, rejected: Sequence[Origin] = ()) -> None:
        """
        Read the encoded *content*; one that is not a message has no `message`.

        *rejected* are the sources of the tasks that send their rejected messages to *origin*.
        """
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
        self._rejected_at = next(
            (
                source
                for source in rejected
                if f"{source.site}/{source.entity}" == self._texts.get(rejection.SOURCE, "").partition(_PARTITIONS)[0]
            ),
            None,
        )
        arrival = None if self.message is None else self.message.arrival
        self.number = None if arrival is None else arrival.sequence_number
        self.enqueued_time = None if arrival is None else arrival.enqueued_time

    @classmethod
    def at(cls, place: Place, content: bytes) -> "Letter":
        """Return the message of *place* with this *content*."""
        return cls(content, place.origin, place.rejected)

    @property
    def key(self) -> str | None:
        """What identifies it in its entity, also after the entity was deleted and created; None if unreadable."""
        return None if self.number is None else f"{self.number}/{self.enqueued_time}"

    @property
    def reason(self) -> str:
        """Why it was given up, for people."""
        if self.message is None:
            return UNREADABLE
        return self._text(rejection.REASON, REASON) or NO_REASON

    @property
    def description(self) -> str | None:
        """The sentence beside the reason."""
        return self._text(rejection.DESCRIPTION, DESCRIPTION)

    def _text(self, stamp: str, own: str) -> str | None:
        """Return the text of a *stamp* if a task has written it, otherwise that of the service's *own* property."""
        return (self._texts.get(stamp) if self._rejected_at else None) or self._texts.get(own)

    @property
    def task(self) -> str | None:
        """The task that rejected it."""
        return self._texts.get(rejection.TASK) if self._rejected_at else None

    @property
    def source(self) -> tuple[str, str] | None:
        """Site and path of the entity that gave it up or that a task had received it from; None if unknown."""
        if self._rejected_at is not None:
            return self._rejected_at.site, self._rejected_at.entity
        entity = None if self.message is None else entity_that_gave_up(self.message.arrival)
        return None if entity is None else (self.origin.site, entity)

    @property
    def is_wrapped(self) -> bool:
        """Whether the message is the body of the one that is there."""
        return (
            self.message is not None
            and self._rejected_at is not None
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

    def readable(self) -> Message:
        """Return the message for a person: what is wrapped as it was; raises MessageRejected if it cannot be read."""
        if self.is_wrapped or self.message is None:
            return self.unwrapped()
        return self.message

    def text(self, name: str) -> str | None:
        """Return an application property that is text, None for another one or without it."""
        try:
            value = None if self.message is None else self.message.application_property(name)
        except MessageRejected:
            return None
        return value.payload if value is not None and isinstance(value.payload, str) else None

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


def number_in(key: str) -> int:
    """Return the sequence number in the key of a message."""
    return int(key.partition("/")[0])


def _stamps_to_remove(texts: dict[str, str]) -> dict[str, Value | None]:
    is_share = rejection.PART in texts or rejection.TARGET in texts
    kept = frozenset(rejection.SHARE if is_share else ())
    return {name: None for name in _REJECT_STAMPS if name in texts and name not in kept}


def _service_properties(message: Message) -> dict[str, Value | None]:
    """Return the properties of the service to remove: text, or null for a reason that was not given."""
    found = {name: message.application_property(name) for name in (REASON, DESCRIPTION)}
    # One of another type is the application's own.
    return {name: None for name, value in found.items() if value is not None and isinstance(value.payload, str | None)}
