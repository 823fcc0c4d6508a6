"""How long messages live, how far they go, and when a task stops or stops waiting."""

from datetime import timedelta
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from shared.editors.options import AS_WRITTEN, Off, Strict
from shared.line.deadline import DEFAULT_HOLD, LONGEST_HOLD
from shared.line.task import DEFAULT_REJECTS_IN_A_ROW
from shared.message.loop_prevention import DEFAULT_MAX_HOPS
from shared.time_limit import DEFAULT_SECONDS


class StampedLife(Strict):
    """A time to live that is set on every copy."""

    stamp: Annotated[timedelta, Field(strict=False, gt=timedelta(0), le=timedelta(milliseconds=2**32 - 1)), AS_WRITTEN]
    """The life, such as 2m or PT2M."""


class LoopPrevention(Strict):
    """Loop prevention: a message is never sent to a site on its repl-path."""

    max_hops: Annotated[int, Field(ge=1)] = DEFAULT_MAX_HOPS
    """Sites that a message may pass through."""


class Limits(Strict):
    """The limits at which a task stops or stops waiting."""

    rejects_in_a_row: Annotated[
        Annotated[Off, Tag("bool")] | Annotated[int, Field(ge=1), Tag("int")],
        Discriminator(lambda value: "bool" if isinstance(value, bool) else "int"),
    ] = DEFAULT_REJECTS_IN_A_ROW
    """
    Number of rejected messages that stops the task: in a row before the first good message, and again that number for
    each good one, up to a hundred times; `off` for no limit, the default of a webhook.
    """
    edit_time: Annotated[
        timedelta, Field(strict=False, ge=timedelta(milliseconds=10), le=timedelta(seconds=60)), AS_WRITTEN
    ] = timedelta(seconds=DEFAULT_SECONDS)
    """Processor time of an editor for each 256 KiB of a message: 10ms to 60s; a `python` editor has ten times that."""
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Messages per second that each instance sends at most, all lanes together; by default as many as it can."""
    hold: Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=1), le=LONGEST_HOLD), AS_WRITTEN] = DEFAULT_HOLD
    """How long a delivery waits for its targets: 1s to 50m, and 5m below the timeout in host.json."""
