"""The two errors of rules: a wrong text, and a failure for one message."""

from shared.errors import ConfigError, MessageRejected, Problem

# How much of a long line is shown around the fault.
_BEFORE, _AFTER = 60, 40


class RuleSyntaxError(ConfigError):
    """
    The text of a filter or an action is invalid.

    Units: line and column count from 1, the column in characters; `caret` is the faulty line with a mark below it.
    """

    def __init__(self, text: str, position: int, *, expected: str, seen: str, hint: str = "") -> None:
        """Point to the character at *position* of *text*."""
        self.line = text.count("\n", 0, position) + 1
        self.column = position - text.rfind("\n", 0, position)
        self.expected = expected
        self.seen = seen
        self.caret = _caret(text, position)
        # The caret comes last, so the hint cannot be left to Problem.
        problem = f"got {seen}, expected {expected}" + (f" ({hint})" if hint else "")
        super().__init__([Problem(f"rule, line {self.line}, column {self.column}", f"{problem}\n{self.caret}")])


class RuleEvaluationError(MessageRejected):
    """
    A rule cannot be evaluated for this message: an unknown system property, or a type that an operator does not accept.

    The message is rejected, because a retry would fail in the same way. Service Bus calls it
    FilterException and dead-letters the message if the subscription says so.
    """

    def __init__(self, description: str) -> None:
        """Describe where, what was found and what was expected, without the value of a property."""
        super().__init__("RuleEvaluationError", description)


def _caret(text: str, position: int) -> str:
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = end if end >= 0 else len(text)
    first, last = max(start, position - _BEFORE), min(end, position + _AFTER)
    # Half a surrogate pair, which is one of these errors, cannot be printed.
    excerpt = text[first:last].encode(errors="replace").decode()
    # A tab is repeated below itself, so that the mark is in the same column.
    margin = "".join("\t" if character == "\t" else " " for character in text[first:position])
    left, right = "…" if first > start else "", "…" if last < end else ""
    return f"    {left}{excerpt}{right}\n    {' ' * len(left)}{margin}^"
