"""
Timer triggers.

A timer fires at the times of its schedule (UTC); a run that takes longer than the interval delays the next. Azure
stores the schedule's status in a blob to detect runs that were missed while the app was down; this host does not, so
that no run is ever past due.

Source: TimerListener and TimerInfo of Azure/azure-webjobs-sdk-extensions.
"""

import asyncio
from datetime import datetime

from host.invocation import invoke_with_retries
from host.listener import Stopping
from host.ncrontab import parse_schedule
from host.settings import Settings
from host.worker import Function, Worker
from host.worker_input import Input, json_data
from shared.clock import Clock
from shared.errors import ConfigError, Problem


class TimerListener:
    """Invokes one function on its schedule."""

    def __init__(
        self, function: Function, settings: Settings, worker: Worker, clock: Clock, stopping: Stopping
    ) -> None:
        """Read the schedule; a ConfigError if it is invalid."""
        path = f"{function.name}.{function.parameter}.schedule"
        try:
            self._schedule = parse_schedule(settings.resolve(str(function.trigger.get("schedule")), path))
        except ValueError as error:
            raise ConfigError([Problem(path, str(error))]) from error
        self.function = function
        self.is_listening = asyncio.Event()
        self._worker = worker
        self._clock = clock
        self._stopping = stopping
        self._last: datetime | None = None

    async def run(self) -> None:
        """Fire until stopped; see `Listener`."""
        self.is_listening.set()
        if self.function.trigger.get("runOnStartup") is True:
            await self._fire()
        while not self._stopping:
            now = self._clock.now()
            next_time = self._schedule.next_after(now)
            if next_time is None:
                await self._stopping.wait(3600)
                continue
            await self._stopping.wait((next_time - now).total_seconds())
            if not self._stopping and self._clock.now() >= next_time:
                await self._fire()

    def stop(self) -> None:
        """Stop firing; see `Listener`."""
        self._stopping.request()

    async def _fire(self) -> None:
        now = self._clock.now()
        next_time = self._schedule.next_after(now)
        status = {
            "Last": None if self._last is None else self._last.isoformat(),
            "Next": None if next_time is None else next_time.isoformat(),
            "LastUpdated": now.isoformat(),
        }
        info = {"Schedule": {"AdjustForDST": True}, "ScheduleStatus": status, "IsPastDue": False}
        self._last = now
        data = Input(json_data(info), {})
        await invoke_with_retries(self._worker, self.function, lambda: data, self._stopping)
