"""
The worker in a process of its own, which the host kills and starts again as Azure's host does (measured).

1. A function that runs longer than functionTimeout fails: the process is killed with everything else that runs in it.
   The listeners get the error some seconds later, when a new worker runs.
2. If the process dies by itself, its invocations fail at once. The next invocation waits for a new worker.
3. `stop` ends it: SIGTERM, which does reach the worker on the platform (FN31: azure-functions-host 11942), and SIGKILL
   2 s later if it still runs. How long the platform waits is unknown. Its running calls are not answered any more.
4. In a drain, an invocation that has just started is aborted after 1 to 3 s; the function goes on until the process
   ends (FN04: azure-functions-host 12007).
"""

import asyncio
import contextlib
import itertools
import logging
import os
import random
import socket
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from host.worker import Attempt, Function, Invocation, Outputs
from host.worker_channel import Answer, Call, Logged, Start, Started
from shared.durations import format_timespan
from shared.errors import ConfigError

_log = logging.getLogger(__name__)

SECONDS_AFTER_TIMEOUT = 10.0
SIGTERM_SECONDS = 2.0
_ABORTED = "Worker channel is shutting down. Aborting function."
_ABORT_SECONDS = (1.0, 3.0)


class Process(Protocol):
    """A process as `asyncio.subprocess` describes it."""

    @property
    def returncode(self) -> int | None:
        """Return the exit code, None while it runs."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM."""
        ...

    def kill(self) -> None:
        """Send SIGKILL."""
        ...

    async def wait(self) -> int:
        """Wait for its end, and return the exit code."""
        ...


type Spawn = Callable[[int, Sequence[str]], Awaitable[Process]]
"""Starts `host.worker_main` with the file descriptor of its channel and its arguments."""


async def new_interpreter(channel: int, arguments: Sequence[str]) -> Process:
    """Start a process with the import path, the environment and the output of this one."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "host.worker_main", str(channel), *arguments),
        pass_fds=(channel,),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
    )


class _Child:
    """One worker process, and the calls that it has not answered."""

    def __init__(self, process: Process, connection: "Connection[Any, Any]") -> None:
        self.calls: dict[int, asyncio.Future[Invocation]] = {}
        self.started: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        self.is_over = False
        self.is_overdue = False
        self._process = process
        self._connection = connection
        self._turn = asyncio.Lock()
        self._ended = asyncio.Event()

    @classmethod
    async def spawn(cls, spawn: Spawn, port: int) -> "_Child":
        """Start a process; *port* is the host's."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await spawn(theirs.fileno(), _arguments(port))
        child = cls(process, Connection(ours.detach()))
        reading = (asyncio.get_running_loop(),)
        threading.Thread(target=child._read, args=reading, name="worker", daemon=True).start()
        return child

    async def send(self, message: object) -> None:
        """Send a message; it is lost if the process has ended, because its calls fail anyway."""
        async with self._turn:
            try:
                await asyncio.to_thread(self._connection.send, message)
            except OSError:
                return

    async def terminate(self, seconds: float) -> None:
        """Ask the process to end, and wait for it."""
        if self._process.returncode is None:
            self._process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)

    async def kill(self) -> None:
        """End the process, and wait until it has ended and its last log records are written."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._ended.wait()

    def fail_calls(self, error: str) -> None:
        """Answer every open call with *error*."""
        for call in self.calls.values():
            if not call.done():
                call.set_result(Invocation(error))
        self.calls.clear()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                message = None
            try:
                loop.call_soon_threadsafe(self._received, message)
            except RuntimeError:
                return  # the loop is closed
            if message is None:
                self._connection.close()
                return

    def _received(self, message: Started | Answer | Logged | None) -> None:
        match message:
            case Logged(record):
                logging.getLogger(record.name).handle(record)
            case Started() if not self.started.done():
                self.started.set_result(message)
            case Answer(number, invocation) if not self.is_overdue:
                call = self.calls.pop(number, None)
                if call is not None and not call.done():
                    call.set_result(invocation)
            case None:
                self.is_over = True
                self._ended.set()
                if not self.started.done():
                    self.started.set_exception(ChildProcessError("the worker process ended while it indexed the app"))
                if not self.is_overdue:
                    self.fail_calls("the worker process ended unexpectedly")


class WorkerProcess:
    """The current worker process of one function app."""

    outputs: Outputs | None = None

    def __init__(self, spawn: Spawn) -> None:
        """Prepare to start processes with *spawn*."""
        self._spawn = spawn
        self.port = 0
        """That of the host's gRPC server, for the arguments of the process."""
        self.timeout: timedelta | None = None
        """So long a function may run."""
        self._folder = Path()
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._last_end = 0.0
        self._is_stopped = False
        self.is_draining = False
        """Whether invocations that start now are aborted."""
        self.invocations = 0
        """How often functions were called: what Azure charges as executions."""

    async def start(self, app_folder: Path) -> list[Function]:
        """Index the app in a new process and return its functions; a ConfigError when it cannot be indexed."""
        self._folder = app_folder
        started = await self._start()
        if started.problems:
            raise ConfigError(started.problems)
        return list(started.functions)

    async def invoke(self, attempt: Attempt) -> Invocation:
        """Run the function once and return the result, which includes exceptions, timeouts and the worker's death."""
        child = await self._running()
        number = next(self._numbers)
        self.invocations += 1
        call = child.calls[number] = asyncio.get_running_loop().create_future()
        await child.send(Call(number, attempt))
        if child.is_over and not child.is_overdue:
            child.fail_calls("the worker process ended unexpectedly")
        seconds = None if self.timeout is None else self.timeout.total_seconds()
        is_aborted = self.is_draining
        if is_aborted:
            seconds = random.uniform(*_ABORT_SECONDS)
        try:
            await asyncio.wait((call,), timeout=seconds)
            if not call.done():
                if is_aborted:
                    return Invocation(_ABORTED)
                await self._end_overdue(child, attempt.function)
            invocation: Invocation = await call
            return invocation
        finally:
            child.calls.pop(number, None)
            self._last_end = asyncio.get_running_loop().time()

    def idle_seconds(self) -> float:
        """Return the seconds since a function last ran, 0 while one runs."""
        if self._child is not None and self._child.calls:
            return 0.0
        return asyncio.get_running_loop().time() - self._last_end

    async def stop(self, seconds: float = SIGTERM_SECONDS) -> None:
        """End the process: with SIGTERM if it has *seconds* to end by itself, then with SIGKILL."""
        self._is_stopped = True
        if self._child is not None:
            self._child.is_overdue = True
            if seconds:
                await self._child.terminate(seconds)
            await self._child.kill()

    async def _end_overdue(self, child: _Child, function: Function) -> None:
        """Kill a worker with a function that runs for too long, and fail its calls once a new worker runs."""
        if not child.is_overdue:
            child.is_overdue = True
            _log.error("%s: ran for more than %s; the worker is killed", function.name, self.timeout)
            await child.kill()
            await self._running()
            await asyncio.sleep(SECONDS_AFTER_TIMEOUT)
            limit = "" if self.timeout is None else format_timespan(self.timeout)
            # The exception of each call names this function (azure-functions-host 11159).
            child.fail_calls(f"Timeout value of {limit} was exceeded by function: {function.name}. {_ABORTED}")

    async def _running(self) -> _Child:
        """Return the current process, or a new one if it has ended."""
        async with self._starting:
            if self._child is None or self._child.is_over or self._child.is_overdue:
                if self._is_stopped:
                    raise ChildProcessError("the host has stopped its worker")
                await self._start()
            assert self._child is not None  # noqa: S101 - started
            return self._child

    async def _start(self) -> Started:
        child = self._child = await _Child.spawn(self._spawn, self.port)
        await child.send(Start(self._folder, _levels()))
        return await child.started


def _arguments(port: int) -> list[str]:
    """Return the arguments of a worker; the real host gives each value twice, under its old name and its new one."""
    address, worker, request, length = "127.0.0.1", str(uuid.uuid4()), str(uuid.uuid4()), str(2**31 - 1)
    old = {"host": address, "port": str(port), "workerId": worker, "requestId": request, "grpcMaxMessageLength": length}
    new = {
        "uri": f"http://{address}:{port}/",
        "worker-id": worker,
        "request-id": request,
        "grpc-max-message-length": length,
    }
    named = old | {f"functions-{name}": value for name, value in new.items()}
    return [word for name, value in named.items() for word in (f"--{name}", value)]


def _levels() -> dict[str, int]:
    """Return the level of the root logger, and of every other logger with its own level."""
    loggers = logging.Logger.manager.loggerDict.items()
    named = {name: logger.level for name, logger in loggers if isinstance(logger, logging.Logger) and logger.level}
    return {"": logging.getLogger().level, **named}
