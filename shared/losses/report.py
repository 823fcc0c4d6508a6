"""What is kept of the numbers of a task between two looks: the content of `losses/TASK.json` beside the status."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from shared.losses.journal_tail import Offsets
from shared.losses.numbers import Loss, Numbers

VERSION = 1
FOLDER = "losses/"
SUFFIX = ".json"


class WatchState(msgspec.Struct, omit_defaults=True):
    """The state of the watch on one source; times are milliseconds since 1970 UTC."""

    version: int
    place: str
    started: int
    looked: int
    """When the last look that saw everything was written; a look that changes nothing is not written every minute."""
    offsets: dict[str, Offsets] = {}
    """By task."""
    parts: dict[str, Numbers] = {}
    """By partition of the source; one in a Service Bus entity that is not partitioned."""
    is_first: bool = False
    """Whether the journals had nothing at the first look."""
    lacks: list[int] = []
    """When a `best_effort` journal began to lack records, and when that was last read."""

    def losses(self) -> list["Found"]:
        """Return the losses of all partitions."""
        return [Found(int(name), loss) for name in sorted(self.parts, key=int) for loss in self.parts[name].losses]


class Found(NamedTuple):
    """A loss in a partition of the source."""

    part: int
    loss: Loss


def blob_name(task: str) -> str:
    """Return the name of the blob with the state of a task."""
    return f"{FOLDER}{task}{SUFFIX}"


def text_of(found: Sequence[Found], *, is_hub: bool, most: int = 20) -> str:
    """Return sequence numbers such as 17, 21-23; of a hub with their partitions."""
    texts = []
    for part, group in groupby(found[:most], key=lambda each: each.part if is_hub else 0):
        numbers = ", ".join(str(loss.first) if loss.count == 1 else f"{loss.first}-{loss.last}" for _, loss in group)
        texts.append(f"{numbers} of partition {part}" if is_hub else numbers)
    return "; ".join(texts) + (f" and {len(found) - most} more ranges" if len(found) > most else "")
