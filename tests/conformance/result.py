"""What one test or scenario of an SDK showed."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Result:
    """
    The outcome of a test, with the reason unless it passed.

    One that passed alone failed among others, with the reason, and passed when it ran again without them.
    """

    name: str
    outcome: Literal["passed", "passed alone", "failed", "skipped"]
    reason: str = ""


class Skipped(Exception):
    """A part that cannot run here, and why."""
