"""
Hosts that are forked from a process with their imports, which take half a second of processor time each time otherwise.

The process is started once by each process of the tests. A host has its own session, environment, output and folder.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

_PROGRAM = "from tests.end_to_end.host_fork import serve; serve()"
_LONGEST_REQUEST = 1 << 20


class ForkedProcess:
    """A forked process, with those methods of `subprocess.Popen` that tests use."""

    def __init__(
        self, program: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, log: IO[bytes]
    ) -> None:
        self._arguments = arguments
        self._code: int | None = None
        read, write = os.pipe()
        self.stdout = os.fdopen(read, encoding="utf-8")
        self._states, theirs = socket.socketpair()
        request = json.dumps([program, list(arguments), dict(environment), str(folder)]).encode()
        with theirs:
            socket.send_fds(_server(str(folder)), [request], [write, log.fileno(), theirs.fileno()])
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
    """Import what a host needs, and fork for each request until the tests close the connection."""
    import host.host  # noqa: F401, PLC0415 - not in the process of the tests

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who wait
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        while True:
            request, files, *_ = socket.recv_fds(requests, _LONGEST_REQUEST, 3)
            if not request:
                return
            if os.fork() == 0:
                requests.close()
                _start(json.loads(request), *files)
            for file in files:
                os.close(file)


def _start(request: Any, output: int, log: int, states: int) -> None:
    """Report the process identifier of a child and its exit code; in the child, run the program."""
    program, arguments, environment, folder = request
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        os.close(output)
        with socket.socket(fileno=states) as connection:
            connection.send(str(child).encode())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with contextlib.suppress(BrokenPipeError):  # nobody asks
                connection.send(str(code).encode())
        os._exit(0)
    os.setsid()
    os.close(states)
    for file, number in ((output, 1), (log, 2)):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    exec(program, {"__name__": "__main__"})  # noqa: S102 - as the interpreter would for -c
    sys.exit()
