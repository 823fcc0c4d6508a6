"""
The copies of a message that the rules of one subscription select.

1. All rules without an action are one OR: they select one copy together.
2. Each rule with an action selects a copy of its own, which has the rule's name.
3. A filter that fails selects nothing and is reported: the subscription's settings decide whether the message is
   dead-lettered.

Source: Microsoft Learn, "Topic filters and actions".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.amqp.values import Value, string
from shared.rules.errors import RuleEvaluationError
from shared.rules.properties import MutableProperties, Properties
from shared.rules.rule import NO_PARAMETERS, Action, Filter

RULE_NAME = "RuleName"


@dataclass(frozen=True)
class Rule:
    """A named filter and the action on the copies it selects."""

    name: str
    filter: Filter
    action: Action | None = None
    filter_parameters: Mapping[str, Value] = NO_PARAMETERS
    action_parameters: Mapping[str, Value] = NO_PARAMETERS

    def apply(self, properties: MutableProperties) -> None:
        """
        Turn the properties of a fresh copy into those of this rule's copy.

        Raises:  RuleEvaluationError; discard the copy then.
        """
        if self.action is not None:
            self.action.apply(properties, self.action_parameters)
            properties.set_user(RULE_NAME, string(self.name))


@dataclass(frozen=True)
class Selection:
    """
    The copies of one message for a subscription.

    Shape: a copy as it is, or none; one changed copy for each rule in `changed`, made with `Rule.apply`; the rules
    whose filter failed, each with its error.
    """

    is_selected_as_is: bool
    changed: tuple[Rule, ...] = ()
    failed: tuple[tuple[Rule, RuleEvaluationError], ...] = ()

    @property
    def copies(self) -> int:
        """Return the number of copies."""
        return self.is_selected_as_is + len(self.changed)


_ONE_AS_IS = Selection(is_selected_as_is=True)
_NOTHING = Selection(is_selected_as_is=False)


class RuleSet:
    """The rules of one subscription; immutable, a new rule makes a new set."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._plain = tuple(rule for rule in self.rules if rule.action is None)
        self._changing = tuple(rule for rule in self.rules if rule.action is not None)

    def select(self, properties: Properties) -> Selection:
        """Return the copies that the rules select; after a match, further rules without an action are not evaluated."""
        failed: list[tuple[Rule, RuleEvaluationError]] = []
        is_selected_as_is = False
        for rule in self._plain:
            if _matches(rule, properties, failed):
                is_selected_as_is = True
                break
        changed = tuple([rule for rule in self._changing if _matches(rule, properties, failed)])
        if changed or failed:
            return Selection(is_selected_as_is, changed, tuple(failed))
        return _ONE_AS_IS if is_selected_as_is else _NOTHING


def _matches(rule: Rule, properties: Properties, failed: list[tuple[Rule, RuleEvaluationError]]) -> bool:
    try:
        return rule.filter.matches(properties, rule.filter_parameters)
    except RuleEvaluationError as error:
        failed.append((rule, error))
        return False
