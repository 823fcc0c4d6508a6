"""The filter editor: a rule selects the messages to send."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from shared.editors.options import FilterText, Step, TaskFacts
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.rules.rule import Filter as Rule
from shared.rules.rule import parse_filter


class FilterStep(Step):
    """Lets the messages through that match a rule; the others are withheld and journalled as filtered."""

    keeps_properties: ClassVar[bool] = True
    rule: FilterText = Field(alias="filter")
    """SQL filter that messages must match; the others are withheld and journalled as filtered."""

    def editor(self, _: TaskFacts, /) -> "Filter":
        """Return the editor with these options."""
        return Filter(parse_filter(self.rule))


class Filter:
    """Lets the messages through for which a rule is true; for false and unknown they are withheld."""

    name = "filter"

    def __init__(self, rule: Rule) -> None:
        """Match by *rule*."""
        self._rule = rule

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message or nothing."""
        return (message,) if self._rule.matches(RuleProperties(message)) else ()
