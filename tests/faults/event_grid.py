"""
Faults on messages that go through Event Grid: of its answers, of the webhook, and of hosts with events in hand.

The local Event Grid delivers by its schedule, a hundred times as fast. It recognizes no duplicates; the task behind the
webhook sends each event once while it remembers it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from busway_broker.faults import Effect, Fault, Operation
from cli.local_services.event_grid import EventGrid, Subscription
from shared.codecs.envelope import open_envelope
from tests.end_to_end.host_process import HostProcess
from tests.event_grid_thread import RunningGrid
from tests.faults.kills import SENT_BUT_UNSETTLED, held
from tests.faults.line import Line, named
from tests.faults.parties import drafts
from tests.faults.routes import CARRIER, THROUGH_GRID
from tests.faults.scenario import Scenario

_FASTER = 100


class StrikingGrid(EventGrid):
    """Answers the next publications with its strikes: a status, or `cut after` they are carried out."""

    strikes: list[int | str]

    async def _publish(self, request: web.Request) -> web.Response:
        if not self.strikes:
            return await super()._publish(request)
        strike = self.strikes.pop(0)
        if isinstance(strike, int):
            return web.Response(status=strike, headers={"Retry-After": "1"})
        answer = await super()._publish(request)
        if request.transport is not None:
            request.transport.abort()
        return answer


class GridLine(Line):
    """A line through a topic of the local Event Grid, whose webhook is always at the latest host."""

    def __init__(self, route: Any, folder: Path, **options: Any) -> None:
        """Prepare in *folder*."""
        super().__init__(route, folder, **options)
        with (folder / "connections.yaml").open("a") as file:
            file.write("grid: {kind: event-grid, setting: GRID}\n")
        self.grid = StrikingGrid("key", sleep=lambda seconds: asyncio.sleep(seconds / _FASTER))
        self.grid.strikes = []
        self.subscription = Subscription("")

    def __enter__(self) -> Self:
        """Start the broker and Event Grid."""
        super().__enter__()
        self.running = self._stack.enter_context(RunningGrid(self.grid))
        return self

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"GRID": self.grid.setting()}

    def host(
        self,
        *,
        is_awaited: bool = True,  # noqa: ARG002 - its port is known once it is ready
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> HostProcess:
        """Start another host, to which the webhook leads from then on; the first one is asked whether it agrees."""
        host = super().host(is_awaited=True, settings=settings, arguments=arguments)
        self.subscription.endpoint = f"http://127.0.0.1:{host.http_port}/api/events/{CARRIER}"
        if len(self.hosts) == 1:
            self.running.subscribe(CARRIER, self.subscription)
        return host

    def carried(self) -> list[str]:
        """Return the names of the messages that Event Grid still delivers, or has given up."""
        events = [
            *self.subscription.waiting.values(),
            *(dead_letter.event for dead_letter in self.subscription.dead_letters),
        ]
        return [named(event.content) for text in events for event in open_envelope(text)]


def _strike(line: Line, strikes: list[int | str]) -> None:
    """Let publications fail while the host runs."""
    assert isinstance(line, GridLine)
    line.grid.strikes = list(strikes)
    line.host()
    line.send(drafts(line.route))
    line.wait_until(lambda: not line.grid.strikes, "struck")
    line.wait_until_drained()


def _target_down(line: Line, times: int) -> None:
    """Let the target behind the webhook fail: the webhook answers 503, and Event Grid delivers again."""
    line.target.add(Fault(effect=Effect.REFUSE, operations=frozenset({Operation.SEND}), times=times))
    line.host()
    line.send(drafts(line.route))
    line.wait_until_struck(line.target, times)
    line.wait_until_drained(120)


def _kill_at_target(line: Line) -> None:
    """Kill the host when the target behind the webhook has accepted events and not answered."""
    line.target.add(held(Operation.SEND))
    host = line.host()
    line.send(drafts(line.route))
    line.wait_until_struck(line.target)
    host.kill()
    line.target.clear()
    # The batch that was being published may be published again.
    line.go_on_with_another_host(*(copy.name for copy in line.accepted))


def _webhook_gone(line: Line) -> None:
    """Stop the host while Event Grid has events, and start another one later."""
    assert isinstance(line, GridLine)
    line.target.add(Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SEND}), times=2))
    host = line.host()
    line.send(drafts(line.route))
    line.wait_until(lambda: line.subscription.waiting, "published")
    host.kill()
    line.target.clear()
    line.expect_repeats({copy.name for copy in line.accepted})
    line.end_locks()
    line.host()
    line.wait_until_drained()


EVENT_GRID = [
    Scenario("Event Grid throttles", THROUGH_GRID, partial(_strike, strikes=[503, 429, 500]), line=GridLine),
    Scenario("Event Grid refuses", THROUGH_GRID, partial(_strike, strikes=[401, 404]), line=GridLine),
    Scenario(
        "acknowledgement of Event Grid lost", THROUGH_GRID, partial(_strike, strikes=["cut after"]), line=GridLine
    ),
    Scenario("target behind the webhook refuses", THROUGH_GRID, partial(_target_down, times=3), line=GridLine),
    *(
        Scenario(name, THROUGH_GRID, action, line=GridLine, explains=SENT_BUT_UNSETTLED, repeats=repeats)
        for name, action, repeats in (
            ("kill -9: target behind the webhook has accepted, without an answer", _kill_at_target, True),
            ("kill -9: Event Grid has events for the webhook", _webhook_gone, None),
        )
    ),
]
