"""
The local Azure Functions host: one function app in this process.

1. `start` indexes the app, checks every binding (all problems in one ConfigError) and starts listening.
2. `ready` returns when every trigger listens. A source that is missing or refuses the host is logged and retried; until
   then the host is not ready, but the other functions run.
3. `stop` ends it in one of three ways, see `Platform`. Then what still runs is not settled, and the worker process is
   ended. Unlike on Azure, as far as is known, each way ends early once nothing has run for 0.7 s.

It is a host for tests and development: no scaling, no function keys, no leases, and of output bindings only HTTP
responses and Event Hubs.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from host.checkpoints import Checkpoints
from host.listener import Listener, Sleep, Stopping
from host.platform import MEASURED, Ending, Platform
from host.settings import Settings, load_host_options
from host.settlement.actions import ActionsCache
from host.trigger_listeners import Triggers
from host.worker import SENT_OUTPUTS, Function
from host.worker_process import SIGTERM_SECONDS, Spawn, WorkerProcess, new_interpreter
from shared.clock import Clock, SystemClock

if TYPE_CHECKING:
    from host.outputs import Outputs
    from host.settlement.service import SettlementService
    from host.triggers.http import HttpListener

_log = logging.getLogger(__name__)

_BESIDE_SECONDS = 0.5
"""So long into a drain the listeners still receive: what starts then is aborted (FN04)."""
_QUIET_SECONDS = 0.7
_POLL_SECONDS = 0.05
_CLOSING_SECONDS = 2.0


class Host:
    """A running function app, with its functions in a worker process."""

    def __init__(
        self,
        app_folder: Path,
        settings: Settings | None = None,
        *,
        wire: bool = False,
        clock: Clock | None = None,
        sleep: Sleep = asyncio.sleep,
        http_port: int | None = None,
        platform: Platform = MEASURED,
        spawn: Spawn = new_interpreter,
    ) -> None:
        """
        Prepare to run the app in *app_folder*, with its local.settings.json unless *settings* are given.

        With *wire* a function gets the bytes of the wire without the conversion by Azure's host. With
        another *clock*, pass a *sleep* too: it is used for the pauses between retries and before listening again.
        """
        self.app_folder = app_folder.resolve()
        self.functions: Sequence[Function] = ()
        self._settings = settings
        self._wire = wire
        self._clock: Clock = SystemClock() if clock is None else clock
        self._http_port = http_port
        self._platform = platform
        self._sleep = sleep
        self._stopping = Stopping(sleep)
        self._cache = ActionsCache()
        self._settlement: SettlementService | None = None
        self._worker = WorkerProcess(spawn)
        self._triggers: Triggers | None = None
        self._http: HttpListener | None = None
        self._outputs: Outputs | None = None
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._drained: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Index the app and start listening; a ConfigError with all problems if it cannot run."""
        settings = Settings.load(self.app_folder) if self._settings is None else self._settings
        options = load_host_options(self.app_folder, settings.values)
        os.environ.update(settings.values)  # where the app reads them
        from host.settlement.service import SettlementService  # noqa: PLC0415 - imports grpc

        self._settlement = SettlementService(self._cache)
        self._worker.port = await self._settlement.start()
        self._worker.timeout = options.function_timeout
        indexed = await self._worker.start(self.app_folder)
        self.functions = [replace(function, retry=function.retry or options.retry) for function in indexed]
        file = settings.get("BUSWAY_CHECKPOINTS")
        self._triggers = Triggers(
            settings,
            options,
            self._worker,
            self._clock,
            self._cache,
            Checkpoints(Path(file) if file else None),
            self._platform,
            wire=self._wire,
        )
        self._listeners = self._make_listeners()
        if any(output["type"] in SENT_OUTPUTS for function in self.functions for output in function.outputs.values()):
            from host.outputs import Outputs  # noqa: PLC0415 - imports the SDKs, which most apps need not wait for

            self._outputs = self._worker.outputs = Outputs(settings)
        self._listen()

    def _listen(self) -> None:
        self._tasks = [asyncio.create_task(listener.run()) for listener in self._listeners]
        for task, listener in zip(self._tasks, self._listeners, strict=True):
            task.add_done_callback(_report_crash(listener))

    async def ready(self) -> None:
        """Return when every trigger listens; raise the error of one that can never listen."""
        listening = [asyncio.create_task(listener.is_listening.wait()) for listener in self._listeners]
        try:
            for waiting, task in zip(listening, self._tasks, strict=True):
                await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    await task
        finally:
            for waiting in listening:
                waiting.cancel()

    @property
    def http_port(self) -> int | None:
        """Return the port on which HTTP functions are served, None without such functions."""
        return None if self._http is None else self._http.port

    async def stop(self) -> None:
        """End the host as `Platform.ending` says."""
        ending = self._platform.ending
        if self._tasks and ending is Ending.STOP:
            self._stopping.announce()
            await self._quiet(self._platform.grace_seconds)
        if self._tasks and ending is Ending.DRAIN:
            await self._drain()
        for listener in self._listeners:
            listener.stop()
        self._stopping.finish()
        if self._tasks and ending is not Ending.RESTART:
            await asyncio.wait(self._tasks, timeout=_CLOSING_SECONDS if self._worker.idle_seconds() else 0)
        await self._worker.stop(0 if ending is Ending.RESTART else SIGTERM_SECONDS)
        if self._settlement is not None:
            await self._settlement.stop()
        _log.info("%d invocations", self._worker.invocations)
        tasks = [*self._tasks, *self._drained]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._outputs is not None:
            await self._outputs.close()

    async def _drain(self) -> None:
        """Stop the listeners, and let invocations end."""
        platform = self._platform
        _log.info("draining")
        self._worker.is_draining = True
        self._stopping.drain()
        self._stopping.announce()
        await asyncio.sleep(_BESIDE_SECONDS)
        for listener in self._listeners:
            listener.stop()
        if platform.restart_in_drain is None:
            await self._quiet(platform.drain_seconds)
            return
        # FN05 (azure-functions-host 11692): the drain is forgotten, and what is in hand at its end is lost.
        await asyncio.sleep(platform.restart_in_drain)
        _log.info("listening again")
        self._stopping.finish()
        self._worker.is_draining = False
        self._drained, self._stopping = self._tasks, Stopping(self._sleep)
        self._listeners = self._make_listeners()
        self._listen()
        await asyncio.sleep(platform.drain_seconds - platform.restart_in_drain)

    async def _quiet(self, seconds: float) -> None:
        """Wait until nothing runs any more, at most for *seconds*."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        end = started + seconds
        while (left := end - loop.time()) > 0:
            quiet = min(self._worker.idle_seconds(), loop.time() - started)
            if quiet >= _QUIET_SECONDS:
                return
            await asyncio.sleep(min(_POLL_SECONDS, left))

    def _make_listeners(self) -> list[Listener]:
        assert self._triggers is not None  # noqa: S101 - started
        listeners = self._triggers.listeners(self.functions, self._stopping)
        http = [function for function in self.functions if function.trigger["type"] == "httpTrigger"]
        if http:
            from host.triggers.http import HttpListener  # noqa: PLC0415 - imports a web server

            self._http = HttpListener(
                http, self._triggers.options.route_prefix, self._http_port, self._worker, self._stopping
            )
            listeners.append(self._http)
        return listeners


def _report_crash(listener: Listener) -> Callable[[asyncio.Task[None]], None]:
    def report(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.critical("%s ended: %r", type(listener).__name__, error, exc_info=error)

    return report


async def run(
    app_folder: Path,
    *,
    wire: bool = False,
    clock: Clock | None = None,
    sleep: Sleep = asyncio.sleep,
    http_port: int | None = None,
    platform: Platform = MEASURED,
    spawn: Spawn = new_interpreter,
    on_ready: Callable[[Host], None] | None = None,
) -> None:
    """
    Run an app until SIGTERM or SIGINT; *on_ready* is called when all its functions listen.

    *spawn* starts its worker.

    Raises: ConfigError, if the app or its settings are invalid.
    """
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    host = Host(app_folder, wire=wire, clock=clock, sleep=sleep, http_port=http_port, platform=platform, spawn=spawn)
    try:
        await host.start()
    except BaseException:
        await host.stop()
        raise
    getting_ready = asyncio.create_task(host.ready())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait((getting_ready, stopping), return_when=asyncio.FIRST_COMPLETED)
        if getting_ready.done():
            getting_ready.result()
            if on_ready is not None:
                on_ready(host)
            await stopping
    finally:
        getting_ready.cancel()
        stopping.cancel()
        await host.stop()
