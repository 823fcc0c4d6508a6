"""Correlation filters: equality of a few properties."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import override

from shared.amqp.values import Value, string
from shared.rules.operators import compare
from shared.rules.properties import Properties
from shared.rules.rule import NO_PARAMETERS, Filter


@dataclass(frozen=True)
class CorrelationFilter(Filter):
    """
    Selects a message that has all of the given properties with the given values.

    Values are case-sensitive, the names of application properties are not; types matter as in the rule language: the
    text '2' is not the number 2.
    Source: Microsoft Learn, "Topic filters and actions".
    """

    content_type: str | None = None
    correlation_id: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    subject: str | None = None
    to: str | None = None
    properties: Mapping[str, Value] = field(default_factory=dict)
    _system: tuple[tuple[str, Value], ...] = field(init=False, repr=False, compare=False)
    _user: tuple[tuple[str, Value], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        texts = {
            "ContentType": self.content_type,
            "CorrelationId": self.correlation_id,
            "MessageId": self.message_id,
            "ReplyTo": self.reply_to,
            "ReplyToSessionId": self.reply_to_session_id,
            "SessionId": self.session_id,
            "Subject": self.subject,
            "To": self.to,
        }
        system = tuple((name, string(text)) for name, text in texts.items() if text is not None)
        user = tuple((name.lower(), value) for name, value in self.properties.items())
        object.__setattr__(self, "_system", system)
        object.__setattr__(self, "_user", user)

    @override
    def evaluate(self, properties: Properties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> bool:
        """Return whether all properties are equal; a missing one is not."""
        return all(_equal(properties.system(name), value) for name, value in self._system) and all(
            _equal(properties.user(name), value) for name, value in self._user
        )


def _equal(seen: Value | None, expected: Value) -> bool:
    return seen is not None and (seen == expected or compare("=", seen, expected) is True)
