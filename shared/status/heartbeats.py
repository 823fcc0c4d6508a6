"""The heartbeats of a task: what the instances report about each route as one status. Pure; time is an argument."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from shared.status.facts import TaskPlaces
from shared.status.model import Heartbeat
from shared.status.report import RouteReport
from shared.status.store import Found
from shared.status.times import iso, moment

MISSED_AFTER = 3
"""Intervals without an arrival after which heartbeats are missed."""
_WARM_SECONDS = 30
_COLD_START_SECONDS = 150
OWNERSHIP_SECONDS = 150.0
"""So long a restarted host waits for the partitions of a hub (azure-sdk-for-net 31941, azure-functions-host 11788)."""


class Seen[Report](NamedTuple):
    """What an instance reports about a task or a route, by whom it was written, and whether that one still runs."""

    report: Report
    found: Found
    is_alive: bool

    def time(self, milliseconds: int) -> datetime:
        """Return a time of the instance's clock by the storage account's."""
        return moment(milliseconds - self.found.ahead)


def patience_of(every: float, *, is_hub: bool = False) -> float:
    """
    Return the seconds after which a heartbeat that is sent *every* so many seconds is missed.

    Flex Consumption goes to zero 30 s after the last message, and then takes up to two minutes for the next one
    (azure-functions-host 10706). An event hub as the source waits for the next owner of its partitions.
    """
    if is_hub:
        return max(MISSED_AFTER * every, every + OWNERSHIP_SECONDS)
    return MISSED_AFTER * every if every < _WARM_SECONDS else max(MISSED_AFTER * every, _COLD_START_SECONDS)


def heartbeats(
    places: TaskPlaces, seen: Iterable[Seen[RouteReport]], since: datetime | None, now: datetime, *, is_paused: bool
) -> list[Heartbeat]:
    """Return the status of each route; instances have been able to send since *since*, None: none reports."""
    found = list(seen)
    return [
        _heartbeat(
            number, places, [route for route in found if route.report.route == number], since, now, is_paused=is_paused
        )
        for number in range(len(places.heartbeats))
    ]


def _heartbeat(
    number: int,
    places: TaskPlaces,
    seen: Sequence[Seen[RouteReport]],
    since: datetime | None,
    now: datetime,
    *,
    is_paused: bool,
) -> Heartbeat:
    arrivals = [
        (route.time(route.report.arrived), route.report.latency) for route in seen if route.report.arrived is not None
    ]
    arrived, latency = max(arrivals, default=(None, None), key=lambda arrival: arrival[0])
    begun = [route.time(route.report.first) for route in seen if route.report.first is not None]
    start = arrived or min(begun, default=since)
    patience = timedelta(seconds=patience_of(places.heartbeat_seconds, is_hub=places.is_hub))
    is_missed = not is_paused and start is not None and now - start > patience
    return Heartbeat(
        route=number,
        target=places.heartbeats[number],
        every=places.heartbeat_seconds,
        arrived=None if arrived is None else iso(arrived),
        latency=None if latency is None else latency / 1000,
        missed=is_missed,
        reason=_reason(seen, patience) if is_missed else None,
    )


def _reason(seen: Sequence[Seen[RouteReport]], patience: timedelta) -> str:
    """Return what is known about the last heartbeats that were sent."""
    sent = [route.report.sent for route in seen if route.report.sent is not None]
    taken = {route.report.taken: route.report.refused for route in seen if route.report.taken is not None}
    unsent = [route.report.unsent for route in seen if route.report.unsent is not None and route.is_alive]
    # The next one may be on its way already.
    refused = taken[max(taken)] if taken else None
    if refused is not None and max(sent, default=0) - max(taken) <= patience.total_seconds() * 1000:
        return refused
    if unsent:
        return f"it cannot be sent to the source: {unsent[-1]}"
    if not sent:
        return "no instance has sent one"
    return f"the one of {iso(moment(max(sent)))} has not come out of the source"
