"""The filter editor: a rule that decides which messages go on."""

from collections.abc import Sequence

from shared.message import Message
from shared.routing import RuleProperties
from shared.rules.rule import Filter as Rule


class Filter:
    """Lets through the messages of which a rule is true; one that is false or unknown is withheld."""

    name = "filter"

    def __init__(self, rule: Rule) -> None:
        """Judge by *rule*."""
        self._rule = rule

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message or nothing."""
        return (message,) if self._rule.matches(RuleProperties(message)) else ()
