"""The filter editor: withholds messages that do not match a rule."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from shared.editors.options import FilterText, MessageStep
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.rules import parse_filter


class FilterStep(MessageStep):
    """Lets the messages through that match a rule; the others are withheld and journalled as filtered."""

    keeps_properties: ClassVar[bool] = True
    rule: FilterText = Field(alias="filter")
    """SQL filter that messages must match; the others are withheld and journalled as filtered."""

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message, or nothing if the rule is false or unknown."""
        return (message,) if parse_filter(self.rule).matches(RuleProperties(message)) else ()
