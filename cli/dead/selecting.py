"""Which messages a command works on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cli.dead.letters import Letter
from shared.errors import ConfigError, MessageRejected, Problem
from shared.message.rule_properties import RuleProperties
from shared.rules.errors import RuleSyntaxError
from shared.rules.rule import SqlFilter, parse_filter, unknown_system_properties

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d|w)")


@dataclass(slots=True)
class Selection:
    """Conditions that a message has to meet, all of them; without any, every message is selected."""

    where: SqlFilter | None = None
    reason: str | None = None
    older_than: timedelta | None = None
    numbers: frozenset[int] | None = None
    limit: int | None = None
    now: datetime | None = None
    unevaluated: int = 0
    """Messages for which `where` could not be evaluated; they are not selected."""
    _taken: int = 0

    @property
    def is_everything(self) -> bool:
        """Whether there is no condition."""
        conditions = (self.where, self.reason, self.older_than, self.numbers, self.limit)
        return all(each is None for each in conditions)

    @property
    def is_complete(self) -> bool:
        """Whether no further message can be selected."""
        return self.limit is not None and self._taken >= self.limit

    def takes(self, letter: Letter) -> bool:
        """Return whether a message is selected, and count it."""
        if self.is_complete or not self._meets(letter):
            return False
        self._taken += 1
        return True

    def _meets(self, letter: Letter) -> bool:
        if self.numbers is not None and letter.number not in self.numbers:
            return False
        if self.reason is not None and letter.reason.lower() != self.reason.lower():
            return False
        if self.older_than is not None:
            age = letter.age(self.now or datetime.now(UTC))
            if age is None or age < self.older_than.total_seconds():
                return False
        if self.where is None:
            return True
        if letter.message is None:
            self.unevaluated += 1
            return False
        try:
            return self.where.matches(RuleProperties(letter.message))
        except MessageRejected:
            self.unevaluated += 1
            return False


def selection(
    where: str | None,
    reason: str | None,
    older_than: str | None,
    numbers: Sequence[int] | None,
    limit: int | None,
) -> Selection:
    """Return the selection that the options describe; raises ConfigError."""
    return Selection(
        None if where is None else filter_of(where),
        reason,
        None if older_than is None else duration_of(older_than, "--older-than"),
        None if not numbers else frozenset(numbers),
        limit,
        datetime.now(UTC),
    )


def filter_of(text: str) -> SqlFilter:
    """Return the compiled filter of `--where`; raises ConfigError."""
    try:
        parsed = parse_filter(text)
    except RuleSyntaxError as error:
        raise ConfigError([Problem("--where", str(error))]) from error
    unknown = unknown_system_properties(parsed)
    if unknown:
        hint = "a property of the application is written without sys."
        raise ConfigError([Problem("--where", f"unknown broker property sys.{unknown[0]}", hint)])
    return parsed


def duration_of(text: str, option: str) -> timedelta:
    """Return a duration such as 90s, 30m, 2h or 7d; raises ConfigError."""
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise ConfigError([Problem(f"{option} {text}", "is not a duration", "expected for example 90s, 30m, 2h or 7d")])
    try:
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError as error:
        raise ConfigError([Problem(f"{option} {text}", "is longer than a duration may be")]) from error


def age_text(seconds: float) -> str:
    """Return a duration for people, to two digits or so."""
    for unit in ("d", "h", "m"):
        if seconds >= 2 * _UNITS[unit] or (unit == "m" and seconds >= _UNITS[unit]):
            return f"{seconds / _UNITS[unit]:.0f} {'min' if unit == 'm' else unit}"
    return f"{seconds:.0f} s"
