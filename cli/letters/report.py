"""What is printed of messages: of an entity, of those that a command selects, and of the run over them."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import typer

from cli.durations import age_text
from cli.message_lines import message_line
from cli.output import print_counts, print_problems, problems_of, waits_for
from cli.progress import progress
from shared.errors import BuswayError
from shared.message.peeked import PeekedMessage
from shared.printable import json_line, printable
from shared.resend.groups import Group, Groups, document, state_of
from shared.resend.inventory import Inventory
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import Place
from shared.resend.selection import Selection

_LONGEST_REASON = 32
_LONGEST_ID = 24
_LONGEST_SESSION = 12
_LONGEST_LAST = 22
_LONGEST_NAME = 40
_MOST_SHOWN = 20
_LEFT_SHOWN = 10


class Form(Enum):
    """How a list is printed."""

    LINES = "lines"
    BODIES = "bodies"
    JSON = "json"


async def print_list(places: Sequence[Place], selection: Selection, form: Form, *, singly: bool) -> None:
    """Print the groups of each entity, or *singly* each message; end with code 1 if one cannot be read."""
    now = datetime.now(UTC)
    has_failed = False
    for number, place in enumerate(places):
        groups = Groups(place, now)
        waits_for(str(place))
        try:
            with progress("read", None) as advance:
                async with contextlib.aclosing(peek(place, os.environ)) as found:
                    async for letter, peeked in found:
                        advance(1)
                        if selection.is_complete:
                            break
                        if selection.takes(letter):
                            if singly:
                                _print_singly(letter, peeked, groups, form, now)
                            groups.add(letter, peeked)
        except BuswayError as error:
            if len(places) == 1:
                raise
            print_problems(problems_of(error))
            has_failed = True
            continue
        if form is Form.JSON and not singly:
            typer.echo(json_line(groups.document()))
        elif form is not Form.JSON and not (singly and groups.count):
            typer.echo("\n" * (number > 0) + "\n".join(lines(groups)))
    print_unevaluated(selection.unevaluated)
    if has_failed:
        raise typer.Exit(1)


def _print_singly(letter: Letter, peeked: PeekedMessage, groups: Groups, form: Form, now: datetime) -> None:
    place = groups.place
    if form is Form.JSON:
        typer.echo(json_line({**document(letter, place), "state": state_of(peeked)}))
        return
    if not groups.count:
        heading = _HEADING + ("reason" if place.has_reasons else "state")
        typer.echo(str(place) + ("" if form is Form.BODIES else f"\n{heading}"))
    if form is Form.BODIES:
        state = None if peeked.is_active else state_of(peeked)
        typer.echo(message_line(letter.content, {"number": letter.number, "state": state}))
        return
    last = letter.reason if place.has_reasons else state_of(peeked)
    due = None if letter.message is None else letter.message.arrival.scheduled_time
    if not place.has_reasons and peeked.is_scheduled and due is not None:
        last = f"due {datetime.fromtimestamp(due / 1000, UTC):%m-%d %H:%M} UTC"
    age = letter.age(now)
    number = "-" if letter.number is None else str(letter.number)
    identity, session = _cut(letter.message_id or "-", _LONGEST_ID), _cut(letter.session_id or "-", _LONGEST_SESSION)
    cells = f"{'-' if age is None else age_text(age):<6}  {identity:<{_LONGEST_ID}}  {session:<{_LONGEST_SESSION}}"
    typer.echo(f"{number:>8}  {cells}  {_cut(last, _LONGEST_LAST)}")


def lines(found: Groups) -> Iterator[str]:
    """Yield the groups as text of 80 columns, if the names allow it."""
    if not found.count:
        yield f"{found.place}: no messages"
        return
    reasons, contents = found.reasons(), found.contents()
    oldest = max((group.oldest for group in found.every() if group.oldest is not None), default=None)
    age = "" if oldest is None else f", the oldest from {age_text(oldest)} ago"
    yield f"{found.place}: {messages(found.count)}{age}"
    if contents:
        yield f"{'count':>8}  {'age':<15}  {'state':<9}  session"
        for content in contents[:_MOST_SHOWN]:
            session = content.name.session
            shown = "-" if session is None else _cut(session, _LONGEST_NAME)
            yield f"{content.count:>8,}  {_ages(content):<15}  {content.name.state:<9}  {shown}"
        more = contents[_MOST_SHOWN:]
        if more:
            yield f"{sum(group.count for group in more):>8,}  in {len(more):,} smaller sessions (--each lists them)"
        return
    width = max(len("reason"), *(len(_cut(reason.name.reason, _LONGEST_REASON)) for reason in reasons))
    yield f"{'count':>8}  {'age':<15}  {'reason':<{width}}  from"
    for each in reasons:
        where = "(unknown)" if each.name.source is None else each.name.source
        by = "" if each.name.task is None else f", task {each.name.task}"
        reason = _cut(each.name.reason, _LONGEST_REASON)
        yield f"{each.count:>8,}  {_ages(each):<15}  {reason:<{width}}  {printable(where + by)}"


_HEADING = f"{'number':>8}  {'age':<6}  {'message id':<{_LONGEST_ID}}  {'session':<{_LONGEST_SESSION}}  "


def _ages(group: Group[Any]) -> str:
    if group.oldest is None or group.newest is None:
        return "unknown"
    oldest, newest = age_text(group.oldest), age_text(group.newest)
    return oldest if oldest == newest else f"{newest} to {oldest}"


def _cut(text: str, width: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def messages(count: int) -> str:
    """Return *count* with its noun."""
    return "1 message" if count == 1 else f"{count:,} messages"


def announce(found: Inventory, verb: str) -> bool:
    """Print what is selected; return whether there is anything to do."""
    print_unevaluated(found.unevaluated)
    for reason, count in found.unreachable.items():
        typer.echo(f"{count:>8,} left: {printable(reason)}")
    if not found.sessions:
        typer.echo(f"{found.groups.place}: nothing to {verb}")
        return False
    typer.echo("\n".join(lines(found.groups)))
    return True


def print_rest(gone: int, left: Iterable[tuple[str, str]], where: str = "") -> None:
    """Print how many messages were *gone*, and *left* for each reason with the first numbers *where* they are."""
    print_counts((gone, "gone: they have expired, or another receiver has taken them meanwhile"))
    numbers: dict[str, list[str]] = {}
    for key, reason in left:
        numbers.setdefault(reason, []).append(key.partition("/")[0])
    for reason, some in sorted(numbers.items(), key=lambda item: -len(item[1])):
        more = ", …" if len(some) > _LEFT_SHOWN else ""
        shown = ", ".join(some[:_LEFT_SHOWN]) + more
        typer.echo(f"{len(some):>8,} left: {printable(reason)} (sequence number {shown}{where})")


def print_end(error: BuswayError | None, *, is_stopped: bool) -> None:
    """Print why a run has ended before its messages were done, if it has."""
    if error is not None:
        typer.echo(f"ended early: {printable(str(error))}", err=True)
    if is_stopped:
        typer.echo("stopped: locks are released; run the command again to continue", err=True)


def print_unevaluated(count: int) -> None:
    """Print for how many messages `--where` could not be evaluated."""
    if count:
        typer.echo(f"{messages(count)} not selected: --where could not be evaluated", err=True)
