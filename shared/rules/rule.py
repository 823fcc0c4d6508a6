"""Filters, in SQL or by correlation, which select messages, and actions, which change them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import override

from shared.amqp.values import Value, string
from shared.rules.conditions import Condition, compile_condition
from shared.rules.operators import compare
from shared.rules.parser import parse_condition, parse_statements
from shared.rules.properties import SYSTEM_PROPERTIES, MutableProperties, Properties
from shared.rules.statements import Change, compile_statement
from shared.rules.syntax import Predicate, Scope, Statement, properties_in

NO_PARAMETERS: Mapping[str, Value] = MappingProxyType({})


class Filter(ABC):
    """Decides whether a rule selects a message."""

    @abstractmethod
    def evaluate(self, properties: Properties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> bool | None:
        """
        Return whether the message is selected, None for unknown.

        Shape:   parameters by name, with or without the @, in any case.
        Raises:  RuleEvaluationError.
        """

    def matches(self, properties: Properties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> bool:
        """Return whether the message is selected; unknown counts as not selected."""
        return self.evaluate(properties, parameters) is True


@dataclass(frozen=True)
class SqlFilter(Filter):
    """A condition in the rule language."""

    condition: Predicate
    _evaluate: Condition = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_evaluate", compile_condition(self.condition))

    def __str__(self) -> str:
        return str(self.condition)

    @override
    def evaluate(self, properties: Properties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> bool | None:
        """Return the result of the condition for the message."""
        return self._evaluate(properties, parameters)


@dataclass(frozen=True)
class TrueFilter(Filter):
    """Selects every message, as the `$Default` rule of a new subscription does."""

    def __str__(self) -> str:
        return "1 = 1"

    @override
    def evaluate(self, properties: Properties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True)
class FalseFilter(Filter):
    """Selects no message."""

    def __str__(self) -> str:
        return "1 = 0"

    @override
    def evaluate(self, properties: Properties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True)
class Action:
    """Statements that change the properties of a selected message, one after the other."""

    statements: tuple[Statement, ...]
    _changes: tuple[Change, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_changes", tuple(map(compile_statement, self.statements)))

    def __str__(self) -> str:
        return "; ".join(map(str, self.statements))

    def apply(self, properties: MutableProperties, parameters: Mapping[str, Value] = NO_PARAMETERS) -> None:
        """
        Carry out the statements on *properties*.

        Raises:  RuleEvaluationError; the statements before the failed one have taken effect.
        """
        for change in self._changes:
            change(properties, parameters)


@lru_cache(maxsize=16_384)
def parse_filter(text: str) -> SqlFilter:
    """
    Return the compiled filter in *text*.

    Raises:  RuleSyntaxError, and nothing else, whatever the text.

    >>> str(parse_filter("not exists(replication) and priority>=5"))
    'NOT EXISTS (replication) AND priority >= 5'
    """
    return SqlFilter(parse_condition(text))


@lru_cache(maxsize=16_384)
def parse_action(text: str) -> Action:
    """
    Return the compiled action in *text*.

    Raises:  RuleSyntaxError, and nothing else, whatever the text.

    >>> str(parse_action("set replication=1 remove [trace-id]"))
    'SET replication = 1; REMOVE [trace-id]'
    """
    return Action(parse_statements(text))


def unknown_system_properties(rule: SqlFilter | Action) -> tuple[str, ...]:
    """
    Return the names under sys. that Service Bus does not define.

    Evaluating one fails for each message; check this when a rule is loaded from a file.
    """
    node = rule.condition if isinstance(rule, SqlFilter) else rule.statements
    names = (each.name for each in properties_in(node) if each.scope is Scope.SYSTEM)
    return tuple(name for name in names if name.lower() not in SYSTEM_PROPERTIES)


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
