"""
The heartbeats of a task on the line: withheld like a filtered message, and each followed by a new one to its target.

1. A heartbeat passes no editor and no rule of a route; who may send to the source chooses none of what is sent on.
2. It is sent once, beside the batch. It never holds a batch and never goes to `rejects`; because of it a batch is
   settled at most LONGEST_SECONDS later.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.clock import Clock
from shared.errors import BuswayError
from shared.line.item import Item
from shared.line.routing import Target
from shared.message.arrival import Arrival
from shared.message.heartbeat import Heartbeat

LONGEST_SECONDS = 5.0


class Arrivals(Protocol):
    """Records the results of a task's heartbeats."""

    def heartbeat(self, route: int, sent: int, milliseconds: int | None, refusal: str | None) -> None:
        """
        Record that the source has delivered the heartbeat of *route* that was sent at *sent*.

        *milliseconds* is the time from the source to the target; None if the target has not accepted it: see *refusal*.
        """
        ...


@dataclass(frozen=True)
class Heartbeats:
    """Sends the heartbeats of one task on."""

    task: str
    targets: Sequence[Target]
    """By the number of the route."""
    arrivals: Arrivals
    clock: Clock
    longest_seconds: float = LONGEST_SECONDS

    async def send(self, found: Mapping[Item, Heartbeat]) -> None:
        """Send the last one of each route of this task on; raises nothing."""
        # One for each route: a sender may have put thousands into a batch.
        own = {
            heartbeat.route: (item.arrival, heartbeat)
            for item, heartbeat in found.items()
            if heartbeat.task == self.task and heartbeat.route < len(self.targets)
        }
        await asyncio.gather(*(self._send(arrival, heartbeat) for arrival, heartbeat in own.values()))

    async def _send(self, arrival: Arrival, heartbeat: Heartbeat) -> None:
        refusal = await self._refusal(self.targets[heartbeat.route], arrival, heartbeat)
        milliseconds = None
        if refusal is None:
            begin = heartbeat.sent if arrival.enqueued_time is None else arrival.enqueued_time
            # The service's clock may be ahead of this machine's.
            milliseconds = max(round(self.clock.now().timestamp() * 1000) - begin, 0)
        self.arrivals.heartbeat(heartbeat.route, heartbeat.sent, milliseconds, refusal)

    async def _refusal(self, target: Target, arrival: Arrival, heartbeat: Heartbeat) -> str | None:
        """Return why *target* has not accepted the heartbeat, None if it has."""
        try:
            outgoing = target.outgoing(heartbeat.to_target(arrival))
            async with asyncio.timeout(self.longest_seconds):
                answers = target.output.send(target.entity, [outgoing], timeout_seconds=0.8 * self.longest_seconds)
                (error,) = await answers
        except TimeoutError:
            return f"{target}: does not answer"
        except BuswayError as fault:
            return str(fault)
        return None if error is None else str(error)
