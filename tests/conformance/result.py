"""What one test or scenario of an SDK showed."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a test, with the reason unless it passed."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    reason: str = ""


class Skipped(Exception):
    """A part that cannot run here, and why."""
