"""The timer of a task that reads its hub itself."""

import azure.functions as func

from shared.line.hub_reader import HubReader

# A run begins when the one before it has ended. `limits.hold` of a batch comes on top, within functionTimeout.
_SCHEDULE = "*/5 * * * * *"
_READ_SECONDS = 240.0


def register_hub_reader(app: func.FunctionApp, task: str, reader: HubReader) -> None:
    """Add the timer to *app*; the host runs it in one instance."""

    async def read(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the trigger's name for it
        await reader.read(_READ_SECONDS)

    decorated = app.timer_trigger(arg_name="timer", schedule=_SCHEDULE, run_on_startup=False)(read)
    app.function_name(task)(decorated)
