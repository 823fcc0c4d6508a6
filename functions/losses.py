"""The duty that looks for losses every minute."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from functions.timers import Duty
from shared.errors import BuswayError
from shared.losses.watch import LossWatch
from shared.printable import printable
from shared.stores.blobs import some_at_once

_LOGGER = logging.getLogger("busway.losses")

NAME = "busway-losses"


def losses_duty(watches: Sequence[LossWatch]) -> Duty:
    """Return the duty for the sources that *watches* observe."""
    failing: set[str] = set()

    async def look_at(watch: LossWatch, now: datetime) -> None:
        try:
            await watch.look(now)
        except BuswayError as error:
            if watch.task not in failing:
                text = "its source cannot be watched for losses; the next look continues"
                _LOGGER.warning("%s: %s: %s", watch.task, text, printable(str(error)))
            failing.add(watch.task)
        else:
            if watch.task in failing:
                failing.discard(watch.task)
                _LOGGER.info("%s: its source is watched for losses again", watch.task)

    async def look() -> None:
        now = datetime.now(UTC)
        await some_at_once([look_at(watch, now) for watch in watches])

    # A task's first look must come before its first message. More instances look more often, which changes nothing.
    return Duty(NAME, look, is_at_start=True)
