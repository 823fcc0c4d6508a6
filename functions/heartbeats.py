"""The timer that sends the heartbeats."""

import azure.functions as func

from shared.status.heartbeat_timer import HeartbeatTimer

NAME = "busway-heartbeats"


def register_heartbeats(app: func.FunctionApp, heartbeats: HeartbeatTimer, schedule: str) -> None:
    """Add the timer to *app*; the host runs it in one instance, off the path of messages."""

    async def send(timer: func.TimerRequest) -> None:  # noqa: ARG001 - the trigger's name for it
        await heartbeats.look()

    decorated = app.timer_trigger(arg_name="timer", schedule=schedule, run_on_startup=False)(send)
    app.function_name(NAME)(decorated)
