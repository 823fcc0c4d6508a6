"""What an entity has: groups by reason, source and task, or by state and session; and one message as a document."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from shared.message.peeked import PeekedMessage
from shared.resend.letters import Letter
from shared.resend.model import GroupChoice
from shared.resend.places import Place


class ContentName(Struct, frozen=True):
    """What the messages of a group share that were not given up: the state and the session."""

    state: str
    session: str | None


def group_of(letter: Letter) -> GroupChoice:
    """Return the group of a message."""
    return GroupChoice(letter.reason, None if letter.source is None else "/".join(letter.source), letter.task)


def state_of(peeked: PeekedMessage) -> str:
    """Return the state of a message: active, scheduled or deferred."""
    return "active" if peeked.is_active else "scheduled" if peeked.is_scheduled else "deferred"


@dataclass(slots=True)
class Group[Name]:
    """Messages that share what the name says."""

    name: Name
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


class Groups:
    """The groups of an entity: those of an entity without reasons are by state and session."""

    def __init__(self, place: Place, now: datetime) -> None:
        """Start without messages; ages count until *now*."""
        self.place = place
        self._now = now
        self._reasons: dict[GroupChoice, Group[GroupChoice]] = {}
        self._contents: dict[ContentName, Group[ContentName]] = {}

    def add(self, letter: Letter, peeked: PeekedMessage) -> None:
        """Count a message in its group."""
        if self.place.has_reasons:
            reason = group_of(letter)
            self._reasons.setdefault(reason, Group(reason)).add(letter, self._now)
        else:
            content = ContentName(state_of(peeked), letter.session_id)
            self._contents.setdefault(content, Group(content)).add(letter, self._now)

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(group.count for group in self.every())

    def every(self) -> "list[Group[Any]]":
        """Return the groups of both kinds, of which an entity has one."""
        return [*self.reasons(), *self.contents()]

    def reasons(self) -> list[Group[GroupChoice]]:
        """Return the groups by reason, the largest first."""
        return sorted(self._reasons.values(), key=lambda group: (-group.count, group.name.reason))

    def contents(self) -> list[Group[ContentName]]:
        """Return the groups by state and session, the largest first."""
        return sorted(self._contents.values(), key=lambda group: (-group.count, group.name.state))

    def document(self) -> dict[str, object]:
        """Return the groups as JSON."""
        return {
            "entity": str(self.place),
            "messages": self.count,
            "groups": [
                {
                    **asdict(group.name),
                    "count": group.count,
                    "oldest_seconds": group.oldest,
                    "newest_seconds": group.newest,
                    "example_number": group.example,
                }
                for group in self.every()
            ],
        }


def document(letter: Letter, place: Place) -> Mapping[str, object]:
    """Return what is known of a message as JSON, without its body."""
    return {
        "entity": str(place),
        "sequence_number": letter.number,
        "enqueued_time": letter.enqueued_time,
        "message_id": letter.message_id,
        "session_id": letter.session_id,
        **asdict(group_of(letter)),
        "description": letter.description,
        "bytes": len(letter.content),
    }
