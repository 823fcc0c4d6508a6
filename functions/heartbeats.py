"""The duty that sends the heartbeats."""

from functions.timers import Duty
from shared.assembly.measurements import EVERY_MINUTE
from shared.status.heartbeat_timer import HeartbeatTimer

NAME = "busway-heartbeats"


def heartbeats_duty(heartbeats: HeartbeatTimer, schedule: str | None) -> Duty:
    """Return the duty, at a *schedule* of its own if a task has more than one a minute."""
    return Duty(NAME, heartbeats.look, schedule or EVERY_MINUTE)
