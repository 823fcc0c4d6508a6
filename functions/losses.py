"""The timer that looks for losses every minute."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

import azure.functions as func

from shared.errors import BuswayError
from shared.losses.watch import LossWatch
from shared.printable import printable
from shared.stores.blobs import some_at_once

_LOGGER = logging.getLogger("busway.losses")

NAME = "busway-losses"
# Not at the full minute, when schedules of other apps begin.
_EVERY_MINUTE = "20 * * * * *"


def register_losses(app: func.FunctionApp, watches: Sequence[LossWatch]) -> None:
    """Add the timer to *app*; the host runs it in one instance."""
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

    async def look(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the trigger's name for it
        now = datetime.now(UTC)
        await some_at_once([look_at(watch, now) for watch in watches])

    # A task's first look must come before its first message. More instances look more often, which changes nothing.
    decorated = app.timer_trigger(arg_name="timer", schedule=_EVERY_MINUTE, run_on_startup=True)(look)
    app.function_name(NAME)(decorated)
