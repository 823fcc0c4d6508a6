"""Which messages a command works on, by its options."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cli.durations import duration_of
from shared.errors import ConfigError, Problem
from shared.resend.selection import Selection
from shared.rules.errors import RuleSyntaxError
from shared.rules.rule import Action, SqlFilter, parse_filter, unknown_system_properties


def selection(
    *,
    where: str | None = None,
    reason: str | None = None,
    older_than: str | None = None,
    number: Sequence[int] | None = None,
    limit: int | None = None,
    session: str | None = None,
) -> Selection:
    """Return the selection that the options describe; raises ConfigError."""
    return Selection(
        None if where is None else filter_of(where),
        reason,
        None if older_than is None else duration_of(older_than, "--older-than"),
        None if not number else frozenset(number),
        limit,
        session,
        datetime.now(UTC),
    )


def filter_of(text: str) -> SqlFilter:
    """Return the compiled filter of `--where`; raises ConfigError."""
    return parsed(parse_filter, text, "--where")


def parsed[Parsed: (SqlFilter, Action)](parse: Callable[[str], Parsed], text: str, option: str) -> Parsed:
    """Return what *parse* makes of the *text* of an option; raises ConfigError."""
    try:
        found = parse(text)
    except RuleSyntaxError as error:
        raise ConfigError([Problem(option, str(error))]) from error
    unknown = unknown_system_properties(found)
    if unknown:
        hint = "a property of the application is written without sys."
        raise ConfigError([Problem(option, f"unknown broker property sys.{unknown[0]}", hint)])
    return found
