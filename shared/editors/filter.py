"""The filter editor: a rule that decides which messages go on."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from shared.editors.options import FilterText, Step, TaskFacts
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.rules.rule import Filter as Rule
from shared.rules.rule import parse_filter


class FilterStep(Step):
    """Lets through the messages of which a rule is true; the others are withheld and journalled."""

    keeps_properties: ClassVar[bool] = True
    rule: FilterText = Field(alias="filter")
    """Rule that the messages which go on are true of; the others are withheld and journalled."""

    def editor(self, _: TaskFacts, /) -> "Filter":
        """Return the editor that does what the options say."""
        return Filter(parse_filter(self.rule))


class Filter:
    """Lets through the messages of which a rule is true; one that is false or unknown is withheld."""

    name = "filter"

    def __init__(self, rule: Rule) -> None:
        """Judge by *rule*."""
        self._rule = rule

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message or nothing."""
        return (message,) if self._rule.matches(RuleProperties(message)) else ()
