"""What an entity with given-up messages has: groups by reason and source, or one line for each message."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from cli.dead.letters import Letter
from cli.dead.places import Place
from cli.dead.selecting import age_text
from shared.printable import printable

_LONGEST_REASON = 32
_LONGEST_ID = 24
_LONGEST_SESSION = 12
_LONGEST_IN_A_LINE = 22


@dataclass(slots=True)
class Group:
    """Messages with one reason, from one source, rejected by one task."""

    reason: str
    source: str | None
    task: str | None
    count: int = 0
    oldest: float | None = None
    newest: float | None = None
    example: int | None = None

    def add(self, letter: Letter, now: datetime) -> None:
        """Count a message."""
        self.count += 1
        self.example = letter.number if self.example is None else self.example
        age = letter.age(now)
        if age is not None:
            self.oldest = age if self.oldest is None else max(self.oldest, age)
            self.newest = age if self.newest is None else min(self.newest, age)

    @property
    def ages(self) -> str:
        """The ages of its messages."""
        if self.oldest is None or self.newest is None:
            return "unknown"
        oldest, newest = age_text(self.oldest), age_text(self.newest)
        return oldest if oldest == newest else f"{newest} to {oldest}"


class Groups:
    """The groups of an entity."""

    def __init__(self, place: Place, now: datetime) -> None:
        """Start without messages; ages count until *now*."""
        self.place = place
        self._now = now
        self._groups: dict[tuple[str, str | None, str | None], Group] = {}

    def add(self, letter: Letter) -> None:
        """Count a message in its group."""
        source = None if letter.source is None else "/".join(letter.source)
        key = letter.reason, source, letter.task
        self._groups.setdefault(key, Group(*key)).add(letter, self._now)

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(each.count for each in self._groups.values())

    def ordered(self) -> list[Group]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: (-group.count, group.reason))

    def lines(self) -> Iterator[str]:
        """Yield the groups as text of 80 columns, if the names allow it."""
        groups = self.ordered()
        if not groups:
            yield f"{self.place}: no messages"
            return
        oldest = max((each.oldest for each in groups if each.oldest is not None), default=None)
        age = "" if oldest is None else f", the oldest from {age_text(oldest)} ago"
        yield f"{self.place}: {messages(self.count)}{age}"
        width = max(len("reason"), *(len(_cut(each.reason, _LONGEST_REASON)) for each in groups))
        yield f"{'count':>8}  {'age':<15}  {'reason':<{width}}  from"
        for each in groups:
            where = "(unknown)" if each.source is None else each.source
            by = "" if each.task is None else f", task {each.task}"
            reason = _cut(each.reason, _LONGEST_REASON)
            yield f"{each.count:>8}  {each.ages:<15}  {reason:<{width}}  {printable(where + by)}"

    def document(self) -> dict[str, object]:
        """Return the groups as JSON."""
        return {
            "entity": str(self.place),
            "messages": self.count,
            "groups": [
                {
                    "reason": each.reason,
                    "source": each.source,
                    "task": each.task,
                    "count": each.count,
                    "oldest_seconds": each.oldest,
                    "newest_seconds": each.newest,
                    "example_number": each.example,
                }
                for each in self.ordered()
            ],
        }


HEADING = f"{'number':>8}  {'age':<6}  {'message id':<{_LONGEST_ID}}  {'session':<{_LONGEST_SESSION}}  reason"


def line(letter: Letter, now: datetime) -> str:
    """Return one message as a line of a list."""
    age = letter.age(now)
    number = "-" if letter.number is None else str(letter.number)
    identity, session = _cut(letter.message_id or "-", _LONGEST_ID), _cut(letter.session_id or "-", _LONGEST_SESSION)
    ago = "-" if age is None else age_text(age)
    reason = _cut(letter.reason, _LONGEST_IN_A_LINE)
    return f"{number:>8}  {ago:<6}  {identity:<{_LONGEST_ID}}  {session:<{_LONGEST_SESSION}}  {reason}"


def document(letter: Letter, place: Place) -> Mapping[str, object]:
    """Return what is known of a message as JSON, without its body."""
    return {
        "entity": str(place),
        "sequence_number": letter.number,
        "enqueued_time": letter.enqueued_time,
        "message_id": letter.message_id,
        "session_id": letter.session_id,
        "reason": letter.reason,
        "description": letter.description,
        "source": None if letter.source is None else "/".join(letter.source),
        "task": letter.task,
        "bytes": len(letter.content),
    }


def messages(count: int) -> str:
    """Return *count* with its noun."""
    return "1 message" if count == 1 else f"{count:,} messages"


def _cut(text: str, width: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= width else shown[: width - 1] + "…"
