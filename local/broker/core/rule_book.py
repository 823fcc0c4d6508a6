"""The rules of a subscription with what rules do not know of themselves: when they came and how they were written."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from local.broker import errors
from local.broker.core.store import milliseconds
from local.broker.errors import Refusal
from shared.clock import Clock
from shared.rules import CorrelationFilter, Rule, RuleSet


@dataclass(frozen=True, slots=True)
class RuleDefinition:
    """
    A rule as somebody asked for it.

    Units: created_at in milliseconds since 1970 UTC, 0 until a subscription has it. The texts are the SQL that was
    written, as clients expect to read it back; a correlation filter has none.
    """

    rule: Rule
    filter_text: str | None = None
    action_text: str | None = None
    created_at: int = 0

    @classmethod
    def of(cls, rule: Rule, created_at: int) -> Self:
        """Return the definition of a rule whose text is not known: it is the one that reads the same."""
        filter_text = None if isinstance(rule.filter, CorrelationFilter) else str(rule.filter)
        return cls(rule, filter_text, None if rule.action is None else str(rule.action), created_at)


class RuleBook:
    """The rules of one subscription, by name; case does not count."""

    def __init__(self, path: str, rules: Iterable[Rule], clock: Clock) -> None:
        """Start with the *rules* of the subscription at *path*."""
        self._path = path
        self._clock = clock
        now = milliseconds(clock)
        self._definitions = {rule.name.lower(): RuleDefinition.of(rule, now) for rule in rules}
        self.rules = RuleSet(rules)

    @property
    def definitions(self) -> tuple[RuleDefinition, ...]:
        """Return the rules in the order in which they came."""
        return tuple(self._definitions.values())

    def find(self, name: str) -> RuleDefinition:
        """Return a rule by name; Refusal(NOT_FOUND), here as below, if there is none."""
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
        """Have the rules of a subscription that was kept."""
        self._definitions = {definition.rule.name.lower(): definition for definition in definitions}
        self._compile()

    def replace(self, definition: RuleDefinition) -> RuleDefinition:
        """Put a rule in the place of the one that has its name."""
        return self._set(definition, self.find(definition.rule.name).created_at)

    def remove(self, name: str) -> None:
        """Remove a rule."""
        self.find(name)
        del self._definitions[name.lower()]
        self._compile()

    def _set(self, definition: RuleDefinition, created_at: int) -> RuleDefinition:
        definition = RuleDefinition(definition.rule, definition.filter_text, definition.action_text, created_at)
        self._definitions[definition.rule.name.lower()] = definition
        self._compile()
        return definition

    def _compile(self) -> None:
        self.rules = RuleSet(definition.rule for definition in self._definitions.values())
