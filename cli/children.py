"""Child processes that are always stopped."""

import asyncio
import os
import re
import signal
import subprocess
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from shared.errors import BuswayError
from shared.private_file import PRIVATE_UMASK, open_private, write_private

_STOP_SECONDS = 15.0
_TAIL_LINES = 15
_REMEMBERED_LINES = 1000
_LONGEST_LINE_BYTES = 1 << 20


type _Start = Callable[[], Awaitable[asyncio.subprocess.Process]]


class ChildFailed(BuswayError):
    """A process ended or did not become ready; the message ends with the last lines of its log."""


@dataclass(eq=False)
class Child:
    """
    A process whose output goes to a log file; made by `start`.

    It gets a process group of its own, so that Ctrl-C in the terminal reaches only the parent, which ends its children
    in their order.
    """

    name: str
    log: Path
    _process: asyncio.subprocess.Process
    _again: _Start | None
    """Starts another one if it is killed."""
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_LINES))
    _has_ended: bool = False
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self._reading = asyncio.create_task(self._read())

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        log: Path,
        folder: Path,
        environment: Mapping[str, str],
        *,
        pid_file: Path | None = None,
    ) -> "Child":
        """
        Start *command* in *folder*, with *environment* on top of this process's own.

        With a *pid_file*, which has its process id, it starts again whenever it is killed.
        """
        await asyncio.to_thread(log.parent.mkdir, parents=True, exist_ok=True)

        async def begin() -> asyncio.subprocess.Process:
            process = await asyncio.create_subprocess_exec(
                *command,
                cwd=folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                umask=PRIVATE_UMASK,
                start_new_session=True,
                limit=_LONGEST_LINE_BYTES,
            )
            if pid_file is not None:
                await asyncio.to_thread(write_private, pid_file, f"{process.pid}\n")
            return process

        return cls(name, log, await begin(), None if pid_file is None else begin)

    async def matches(self, pattern: str, count: int, timeout_seconds: float) -> list[re.Match[str]]:
        """
        Return the first *count* matches of *pattern* in its lines, as soon as they are there.

        Raises ChildFailed when the process ends before, or takes longer than *timeout_seconds*.
        """
        expected = re.compile(pattern)
        try:
            async with asyncio.timeout(timeout_seconds), self._changed:
                while True:
                    found = [match for line in self._lines if (match := expected.search(line))]
                    if len(found) >= count:
                        return found[:count]
                    if self._has_ended:
                        raise self._failed("ended before it was ready")
                    await self._changed.wait()
        except TimeoutError:
            raise self._failed(f"was not ready after {timeout_seconds:.0f} s") from None

    def match(self, pattern: str) -> re.Match[str] | None:
        """Return the first match of *pattern* in the lines so far, None without one."""
        expected = re.compile(pattern)
        return next((match for line in self._lines if (match := expected.search(line))), None)

    async def ended(self) -> NoReturn:
        """Wait for the process to end, and raise ChildFailed."""
        # The caller may be cancelled, and the reading must continue.
        await asyncio.shield(self._reading)
        raise self._failed(f"ended with exit code {await self._process.wait()}")

    async def stop(self) -> int:
        """Terminate the process, kill it if it does not end, and return its exit code."""
        self._again = None
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
        code = await self._process.wait()
        await self._reading
        return code

    def tail(self) -> str:
        """Return the last lines of the log."""
        return "\n".join(f"  {line}" for line in list(self._lines)[-_TAIL_LINES:])

    async def _read(self) -> None:
        # Lines of a log may name messages.
        with open_private(self.log) as log:
            while True:
                stream = self._process.stdout
                assert stream is not None  # noqa: S101 - it is started with a pipe
                while line := await stream.readline():
                    text = line.decode(errors="replace").rstrip()
                    log.write(text + "\n")
                    log.flush()
                    async with self._changed:
                        self._lines.append(text)
                        self._changed.notify_all()
                if await self._process.wait() != -signal.SIGKILL or self._again is None:
                    break
                self._process = await self._again()
        async with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _failed(self, what: str) -> ChildFailed:
        return ChildFailed(f"{self.name} {what}; the end of {self.log}:\n{self.tail()}")
