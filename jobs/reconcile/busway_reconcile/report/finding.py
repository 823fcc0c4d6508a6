"""A message with a finding, as the page shows it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from busway_reconcile.report.lag_chart import duration
from busway_reconcile.report.trace import Step, moment, source_of

_FIRST_SHOWN, _LAST_SHOWN = 10, 30  # records of one message: a message that is retried for hours has thousands
_CHARACTERS_SHOWN = 200


@dataclass(frozen=True)
class Finding:
    """A message with a finding, or an undecided one, and its records."""

    row: Mapping[str, Any]
    steps: Sequence[Step]
    left_out: int = 0
    last_steps: Sequence[Step] = ()

    @property
    def name(self) -> str:
        """The message id."""
        return _shortened(self.row["message_id"] or "(no message id)")

    @property
    def source(self) -> str:
        """The entity that it entered."""
        return source_of(self.row)

    @property
    def target(self) -> str:
        """The target at which it arrived, or to which it should have been sent, or a dash."""
        return self.row["arrived_at"] or self.row["meant_for"] or "-"

    @property
    def entered(self) -> str:
        """The time at which it entered."""
        return moment(self.row["enqueued_time"])

    @property
    def detail(self) -> str:
        """The detail that explains its verdict, if there is one."""
        row = self.row
        match row["verdict"]:
            case "duplicated":
                return f"{row['copies']} copies arrived, {row['expected']} expected"
            case "altered":
                return f"{row['altered']} changed"
            case "late":
                return f"took {duration(row['lag_milliseconds'])}"
            case "missing" if (row["expected"] or 1) > 1:
                return f"{row['copies']} of {row['expected']} copies arrived"
            case "missing" | "undecided" if row["last_reason"]:
                return f"last error: {_shortened(row['last_reason'])}"
        return ""

    @property
    def note(self) -> str:
        """What else a reader must know, or an empty text."""
        return self.row.get("note") or ""

    @property
    def also(self) -> list[str]:
        """Its other findings."""
        return [kind for kind in self.row["findings"] if kind != self.row["verdict"]]


@dataclass(frozen=True)
class Kind:
    """A verdict, its number of messages, and the first of them."""

    verdict: str
    count: int
    findings: Sequence[Finding]


def _shortened(text: str) -> str:
    """Return *text*, or its start if it is very long."""
    if len(text) <= _CHARACTERS_SHOWN:
        return text
    return f"{text[:_CHARACTERS_SHOWN]}\u2026 ({len(text):,} characters)"


def with_ends(message: Mapping[str, Any], steps: Sequence[Step]) -> Finding:
    """Return *message* with its first and its last steps."""
    left_out = len(steps) - _FIRST_SHOWN - _LAST_SHOWN
    if left_out <= 0:
        return Finding(message, steps)
    return Finding(message, steps[:_FIRST_SHOWN], left_out, steps[-_LAST_SHOWN:])
