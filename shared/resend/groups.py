"""What an entity with given-up messages has: groups by reason, source and task; and one message as a document."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from shared.resend.letters import Letter
from shared.resend.places import Place


class GroupName(NamedTuple):
    """What the messages of a group share: the reason, the source, and the task that rejected them."""

    reason: str
    source: str | None
    task: str | None


def group_of(letter: Letter) -> GroupName:
    """Return the group of a message."""
    return GroupName(letter.reason, None if letter.source is None else "/".join(letter.source), letter.task)


@dataclass(slots=True)
class Group:
    """Messages with one reason, from one source, rejected by one task."""

    name: GroupName
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
    """The groups of an entity."""

    def __init__(self, place: Place, now: datetime) -> None:
        """Start without messages; ages count until *now*."""
        self.place = place
        self._now = now
        self._groups: dict[GroupName, Group] = {}

    def add(self, letter: Letter) -> None:
        """Count a message in its group."""
        name = group_of(letter)
        self._groups.setdefault(name, Group(name)).add(letter, self._now)

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum(each.count for each in self._groups.values())

    def ordered(self) -> list[Group]:
        """Return the groups, the largest first."""
        return sorted(self._groups.values(), key=lambda group: (-group.count, group.name.reason))

    def document(self) -> dict[str, object]:
        """Return the groups as JSON."""
        return {
            "entity": str(self.place),
            "messages": self.count,
            "groups": [
                {
                    **each.name._asdict(),
                    "count": each.count,
                    "oldest_seconds": each.oldest,
                    "newest_seconds": each.newest,
                    "example_number": each.example,
                }
                for each in self.ordered()
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
        **group_of(letter)._asdict(),
        "description": letter.description,
        "bytes": len(letter.content),
    }
