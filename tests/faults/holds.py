"""
Targets that are away for longer than the service lets a receiver wait: link, lock, hold and delivery budget.

The link of a receiver ends after ten minutes without activity (SR4), a lock after a minute, a hold after fifteen
minutes, and a message is dead-lettered after ten deliveries.
"""

from functools import partial

from tests.faults.line import Line
from tests.faults.outages import virtual
from tests.faults.parties import drafts
from tests.faults.routes import QUEUE_TO_HUB, QUEUES, SESSION_QUEUES, SUBSCRIPTION_TO_TOPIC
from tests.faults.scenario import Scenario
from tests.faults.virtual_time import VirtualLine

_PAST_LINK_IDLE_SECONDS = 11 * 60
# Longer than two holds, and than ten deliveries of one lock each.
_PAST_HOLDS_SECONDS = 40 * 60


def away(line: Line, seconds: float) -> None:
    """Take the target's namespace down during traffic, and bring it back."""
    line = virtual(line)
    line.host()
    line.send(drafts(line.route, "before-"))
    line.wait_until_drained()
    line.target.go_down()
    started = line.clock.monotonic()
    line.send(drafts(line.route, "during-"))
    line.wait_until_passed(started + seconds)
    line.target.come_up()
    line.send(drafts(line.route, "after-"))
    line.wait_until_drained()


_ROUTES = (SESSION_QUEUES, SUBSCRIPTION_TO_TOPIC, QUEUE_TO_HUB, QUEUES)

HOLDS = [
    *(
        Scenario(
            f"target away for {int(seconds) // 60} minutes", route, partial(away, seconds=seconds), line=VirtualLine
        )
        for seconds in (_PAST_LINK_IDLE_SECONDS, _PAST_HOLDS_SECONDS)
        for route in _ROUTES
    ),
]
