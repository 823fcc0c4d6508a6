"""
Hosts and their workers, forked from a process with their imports: a second of processor time each otherwise.

The process is started once by each process of the tests. A host has its own session, environment, output and folder.
Before it has threads, it forks one more process, from which its workers are forked: a signal to its group reaches them.
"""

import asyncio
import atexit
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from host.worker_process import Process

_PROGRAM = "from tests.end_to_end.host_fork import serve; serve()"
_WORKER = "from host.worker_main import main; main()"
_IMPORTS = (
    *("host.host", "host.settlement.service", "host.triggers.http", "host.worker_main"),
    *("functions.composition", "azure.servicebus.aio", "azure.eventhub.aio", "azure.storage.blob.aio"),
)
_LONGEST_REQUEST = 1 << 20

_workers: socket.socket | None = None
"""In a host: where it asks for its workers."""


class ForkedProcess:
    """A forked process, with those methods of `subprocess.Popen` that tests use."""

    def __init__(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: IO[bytes]
    ) -> None:
        self._arguments = arguments
        self._code: int | None = None
        read, write = os.pipe()
        self.stdout = os.fdopen(read, encoding="utf-8")
        request = [program, ["-c", *arguments], dict(environment), str(folder)]
        self._states = _requested(_server(str(folder)), request, write, log.fileno())
        os.close(write)
        self.pid = int(self._states.recv(32))

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code."""
        if self._code is None:
            self._states.settimeout(timeout)
            try:
                self._code = int(self._states.recv(32))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(list(self._arguments), timeout or 0) from None
            self._states.close()
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class _ForkedWorker:
    """A worker of the host in this process."""

    def __init__(self, pid: int, states: socket.socket) -> None:
        self.returncode: int | None = None
        self._pid = pid
        self._ending = asyncio.create_task(self._end(states))

    async def _end(self, states: socket.socket) -> int:
        with states:
            self.returncode = int(await asyncio.get_running_loop().sock_recv(states, 32))
        return self.returncode

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ending)

    def _signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # its exit code is on its way
                os.kill(self._pid, number)


async def forked_worker(channel: int, arguments: Sequence[str]) -> "Process":
    """Start a worker of the host in this process, with its environment, folder and output."""
    if _workers is None:
        from host.worker_process import new_interpreter  # noqa: PLC0415 - not in the process of the tests

        return await new_interpreter(channel, arguments)
    request = [_WORKER, ["host/worker_main.py", *arguments], dict(os.environ), str(Path.cwd())]
    states = _requested(_workers, request, channel)
    states.setblocking(False)
    return _ForkedWorker(int(await asyncio.get_running_loop().sock_recv(states, 32)), states)


def _requested(server: socket.socket, request: Sequence[Any], *files: int) -> socket.socket:
    """Ask for a process that gets *files*; return where its identifier and then its exit code come."""
    states, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(server, [json.dumps(request).encode()], [theirs.fileno(), *files])
    return states


@cache
def _server(folder: str) -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
        )

    def end() -> None:
        ours.close()
        server.wait()

    atexit.register(end)
    return ours


def serve() -> None:
    """Import what hosts and workers need, and fork a host for each request until the tests close the connection."""
    for module in _IMPORTS:
        importlib.import_module(module)
    gc.freeze()  # a collection in a child would copy the memory of all modules
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _serve(requests, _become_host)


def _serve(requests: socket.socket, become: Any) -> None:
    while True:
        request, files, *_ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
        _reap()
        if not request:
            return
        if os.fork() == 0:
            requests.close()
            _start(json.loads(request), become, *files)
        for file in files:
            os.close(file)


def _reap() -> None:
    """Collect those processes that have reported an exit code."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _start(request: Any, become: Any, states: int, *files: int) -> None:
    """Report the process identifier of a child and its exit code; in the child, run the program."""
    program, arguments, environment, folder = request
    child = os.fork()
    if child:
        for file in files:
            os.close(file)
        with socket.socket(fileno=states) as connection:
            connection.send(str(child).encode())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with contextlib.suppress(BrokenPipeError):  # nobody asks
                connection.send(str(code).encode())
        os._exit(0)
    os.close(states)
    sys.argv = arguments
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    become(*files)
    exec(program, {"__name__": "__main__"})  # noqa: S102 - as the interpreter would for -c
    sys.exit()


def _become_host(output: int, log: int) -> None:
    """Have a session and output of its own, and a process that forks workers."""
    global _workers
    os.setsid()
    for file, number in ((output, 1), (log, 2)):
        os.dup2(file, number)
        os.close(file)
    _workers, requests = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        _workers.close()
        _serve(requests, lambda channel: sys.argv.insert(1, str(channel)))
        os._exit(0)
    requests.close()
