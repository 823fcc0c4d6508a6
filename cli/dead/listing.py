"""The groups of an entity as text, or one line for each message."""

from collections.abc import Iterator
from datetime import datetime

from cli.dead.ages import age_text
from shared.printable import printable
from shared.resend.groups import Group, Groups
from shared.resend.letters import Letter

_LONGEST_REASON = 32
_LONGEST_ID = 24
_LONGEST_SESSION = 12
_LONGEST_IN_A_LINE = 22


def lines(found: Groups) -> Iterator[str]:
    """Yield the groups as text of 80 columns, if the names allow it."""
    groups = found.ordered()
    if not groups:
        yield f"{found.place}: no messages"
        return
    oldest = max((each.oldest for each in groups if each.oldest is not None), default=None)
    age = "" if oldest is None else f", the oldest from {age_text(oldest)} ago"
    yield f"{found.place}: {messages(found.count)}{age}"
    width = max(len("reason"), *(len(_cut(each.name.reason, _LONGEST_REASON)) for each in groups))
    yield f"{'count':>8}  {'age':<15}  {'reason':<{width}}  from"
    for each in groups:
        where = "(unknown)" if each.name.source is None else each.name.source
        by = "" if each.name.task is None else f", task {each.name.task}"
        reason = _cut(each.name.reason, _LONGEST_REASON)
        yield f"{each.count:>8,}  {_ages(each):<15}  {reason:<{width}}  {printable(where + by)}"


HEADING = f"{'number':>8}  {'age':<6}  {'message id':<{_LONGEST_ID}}  {'session':<{_LONGEST_SESSION}}  reason"


def line(letter: Letter, now: datetime) -> str:
    """Return one message as a line of a list."""
    age = letter.age(now)
    number = "-" if letter.number is None else str(letter.number)
    identity, session = _cut(letter.message_id or "-", _LONGEST_ID), _cut(letter.session_id or "-", _LONGEST_SESSION)
    ago = "-" if age is None else age_text(age)
    reason = _cut(letter.reason, _LONGEST_IN_A_LINE)
    return f"{number:>8}  {ago:<6}  {identity:<{_LONGEST_ID}}  {session:<{_LONGEST_SESSION}}  {reason}"


def messages(count: int) -> str:
    """Return *count* with its noun."""
    return "1 message" if count == 1 else f"{count:,} messages"


def _ages(group: Group) -> str:
    if group.oldest is None or group.newest is None:
        return "unknown"
    oldest, newest = age_text(group.oldest), age_text(group.newest)
    return oldest if oldest == newest else f"{newest} to {oldest}"


def _cut(text: str, width: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"
