"""What the line needs to know of a task file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from shared.line.deadline import DEFAULT_HOLD
from shared.line.routing import Router, Target
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import TimeToLive
from shared.protocols import BATCH_BYTES, BatchEditor, Editor, Settlement
from shared.time_limit import DEFAULT_SECONDS

DEFAULT_REJECTS_IN_A_ROW = 100


@dataclass(frozen=True)
class Task:
    """A replication task, assembled from its file."""

    name: str
    origin: Origin
    editors: Sequence[Editor | BatchEditor]
    router: Router
    rejects: Target | None
    time_to_live: TimeToLive
    loop_guard: LoopGuard | None
    opens_envelopes: bool = False
    """Each message that it takes is an envelope of messages (`shared.codecs.envelope`)."""
    opens_some: bool = False
    """With `opens_envelopes`: a message that is no envelope is taken as it is."""
    has_order: bool = True
    """Whether the numbers of its messages are in the order in which these were sent to the source."""
    restore: Callable[[Message], None] | None = None
    """Applied to every message as it arrives (`shared.message.mapping`)."""
    partitions: frozenset[str] | None = None
    """The partitions of a hub that the task takes from; it passes over batches of others. None: all."""
    one_by_one: bool = False
    """Whether the host delivers each message by itself, renews its lock and settles it (`dispatch: single`)."""
    settlement: Settlement | None = None
    """Renews and settles at its source, None if that has no locks (Event Hubs)."""
    hold: timedelta = DEFAULT_HOLD
    """How long a batch may wait for its targets."""
    rate: float | None = None
    """The messages per second that an instance sends at most, None: no limit."""
    rejects_in_a_row: int | None = DEFAULT_REJECTS_IN_A_ROW
    """The task stops after this many rejected messages in a row; None: never."""
    edit_seconds: float = DEFAULT_SECONDS
    """The processor time that an editor, or the routes, may take for a message."""
    batch_bytes: int = BATCH_BYTES
    """The bytes that the messages of a batch may take together; what is beyond them waits."""
    heartbeat_targets: Sequence[Target] = ()
    """Where its heartbeats go, by the number of the route; empty if it has none."""
    dry_run: bool = False
    """Nothing is sent (`busway try`): `BatchEditor.settled` is not called."""
