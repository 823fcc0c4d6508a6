"""The two things that can be wrong with a rule: its text, and its meeting with a message."""

from shared.errors import ConfigError, MessageRejected, Problem

# How much of a long line is shown around the fault.
_BEFORE, _AFTER = 60, 40


class RuleSyntaxError(ConfigError):
    """
    The text of a filter or an action is not in the rule language.

    Units: line and column count from 1, the column in characters; `caret` is the faulty line with a mark below it.
    """

    def __init__(self, text: str, position: int, *, expected: str, seen: str, hint: str = "") -> None:
        """Point at the character *position* of *text*."""
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        self.expected = expected
        self.seen = seen
        self.caret = _caret(text, position)
        # The caret comes last, so the hint cannot be left to Problem.
        problem = f"saw {seen}, expected {expected}" + (f" ({hint})" if hint else "")
        super().__init__([Problem(f"rule, line {self.line}, column {self.column}", f"{problem}\n{self.caret}")])


class RuleEvaluationError(MessageRejected):
    """
    A rule cannot be computed for this message: no such system property, a type that an operator does not take.

    It sets the message aside, because the same rule meets the same message on every retry. Service Bus calls it
    FilterException and dead-letters the message if the subscription says so.
    """

    def __init__(self, description: str) -> None:
        """Say where, what was seen and what was expected, without the value of a property."""
        super().__init__("RuleEvaluationError", description)


def _caret(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = end if end >= 0 else len(text)
    first, last = max(start, position - _BEFORE), min(end, position + _AFTER)
    # Half a surrogate pair is one of the faults to show, and no output can print it.
    excerpt = text[first:last].encode(errors="replace").decode()
    # A tab stays a tab below itself, so that the mark stands where the eye looks for it.
    margin = "".join("\t" if character == "\t" else " " for character in text[first:position])
    left, right = "…" if first > start else "", "…" if last < end else ""
    return f"    {left}{excerpt}{right}\n    {' ' * len(left)}{margin}^"
