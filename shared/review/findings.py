"""A finding of a review."""

from dataclasses import dataclass

from shared.errors import Problem
from shared.review.checks import Check


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding: the check, the place, and what is wrong there."""

    check: Check
    path: str
    seen: str

    @property
    def problem(self) -> Problem:
        """Return the finding as a problem of the configuration, with the remedy of its check as the hint."""
        return Problem(self.path, self.seen, self.check.remedy)

    def __str__(self) -> str:
        """Return the finding in one line: severity and name of the check, place, what is wrong, how to fix it."""
        return f"{self.check.severity} {self.check.name}: {self.problem}"
