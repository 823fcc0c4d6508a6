"""The rules of a subscription, with their creation times and their text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Self

from busway_broker import errors
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal
from shared.clock import Clock
from shared.rules import CorrelationFilter, Rule, RuleSet


@dataclass(frozen=True, slots=True)
class RuleDefinition:
    """
    A rule with its creation time and text.

    Units: created_at in milliseconds since 1970 UTC, 0 until a subscription has it. The texts are the original SQL,
    which clients expect to read back; a correlation filter has none. The times are the text of the date-times among the
    parameters or properties, with or without a zone as the client gave them.
    """

    rule: Rule
    filter_text: str | None = None
    action_text: str | None = None
    created_at: int = 0
    filter_times: Mapping[str, str] = MappingProxyType({})
    action_times: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, rule: Rule, created_at: int) -> Self:
        """Return the definition of a rule whose text is unknown; the canonical text takes its place."""
        filter_text = None if isinstance(rule.filter, CorrelationFilter) else str(rule.filter)
        return cls(rule, filter_text, None if rule.action is None else str(rule.action), created_at)


class RuleBook:
    """The rules of one subscription by name, without regard to case."""

    def __init__(self, path: str, rules: Iterable[Rule], clock: Clock) -> None:
        """Start with the *rules* of the subscription at *path*."""
        self._path = path
        self._clock = clock
        now = milliseconds(clock)
        self._definitions = {rule.name.lower(): RuleDefinition.of(rule, now) for rule in rules}
        self.rules = RuleSet(rules)

    @property
    def definitions(self) -> tuple[RuleDefinition, ...]:
        """Return the rules in the order of their creation."""
        return tuple(self._definitions.values())

    def find(self, name: str) -> RuleDefinition:
        """Return a rule by name; this and the methods below raise Refusal(NOT_FOUND) for an unknown name."""
        definition = self._definitions.get(name.lower())
        if definition is None:
            raise Refusal(errors.NOT_FOUND, f"{self._path}: rule {name} does not exist")
        return definition

    def add(self, definition: RuleDefinition) -> RuleDefinition:
        """Add a rule; Refusal(ENTITY_ALREADY_EXISTS) if one has its name."""
        name = definition.rule.name
        if name.lower() in self._definitions:
            raise Refusal(errors.ENTITY_ALREADY_EXISTS, f"{self._path}: rule {name} already exists")
        return self._set(definition, milliseconds(self._clock))

    def restore(self, definitions: Iterable[RuleDefinition]) -> None:
        """Load the rules of a stored subscription."""
        self._definitions = {definition.rule.name.lower(): definition for definition in definitions}
        self._compile()

    def replace(self, definition: RuleDefinition) -> RuleDefinition:
        """Replace the rule of the same name."""
        return self._set(definition, self.find(definition.rule.name).created_at)

    def remove(self, name: str) -> None:
        """Remove a rule."""
        self.find(name)
        del self._definitions[name.lower()]
        self._compile()

    def _set(self, definition: RuleDefinition, created_at: int) -> RuleDefinition:
        definition = replace(definition, created_at=created_at)
        self._definitions[definition.rule.name.lower()] = definition
        self._compile()
        return definition

    def _compile(self) -> None:
        self.rules = RuleSet(definition.rule for definition in self._definitions.values())
