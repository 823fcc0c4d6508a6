"""A host in a process of its own: the worker library keeps one app per process, and SIGTERM is part of the test."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tests.end_to_end.host_fork import ForkedProcess

ROOT = Path(__file__).parents[2]
APPS = Path(__file__).parent / "apps"

_PROGRAM = """
import asyncio, logging, sys
from pathlib import Path
from host.host import run
from host.platform import Ending, Platform
from tests.end_to_end.host_fork import forked_worker
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("azure").setLevel(logging.WARNING)
tell = lambda host: print("ready", host.http_port or 0, *[function.name for function in host.functions], flush=True)
words = [word[2:].replace("-", "_").partition("=") for word in sys.argv[2:] if "=" in word]
options = {name: Ending(value) if name == "ending" else float(value) for name, _, value in words}
wire = "--wire" in sys.argv
platform = Platform(**options)
asyncio.run(run(Path(sys.argv[1]), wire=wire, http_port=0, on_ready=tell, platform=platform, spawn=forked_worker))
"""


class HostProcess:
    """The running host of a test app; its notes are the invocations so far, in order."""

    program = _PROGRAM
    root = ROOT
    """The folder of the code."""

    def __init__(self, app: str, folder: Path, settings: dict[str, str], *arguments: str) -> None:
        self._app = APPS / app
        self._notes = folder / "notes.jsonl"
        self._log = folder / "host.log"
        self._notes.touch()
        self._settings = settings
        self._arguments = arguments
        self.http_port = 0

    def __enter__(self) -> Self:
        environment = {**os.environ, **self._settings, "NOTES": str(self._notes), "PYTHONPATH": str(self.root)}
        arguments = [str(self._app), *self._arguments]
        with self._log.open("ab") as log:
            if self.root == ROOT and "SSL_CERT_FILE" not in self._settings:  # which is read with the imports
                self._process: ForkedProcess | subprocess.Popen[str] = ForkedProcess(
                    self.program, arguments, environment, ROOT, log
                )
                return self
            self._process = subprocess.Popen(  # noqa: S603 - the arguments are the test's own
                [sys.executable, "-c", self.program, *arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self.root,
                text=True,
                # A group of its own, so that `kill` and `pause` reach the worker process too.
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def wait_until_ready(self, seconds: float = 90) -> None:
        """Wait for the ready line, which names the HTTP port and the functions."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            assert selector.select(seconds), f"not ready after {seconds} s:\n{self.log()}"
        word, *words = self._process.stdout.readline().split() or [self.log()]
        assert word == "ready", word
        self.http_port = int(words[0])

    def stop(self, seconds: float = 20) -> int:
        """Send SIGTERM and return the exit code."""
        self.terminate()
        return self._process.wait(seconds)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Let the process do nothing until `resume`; its connections stay open."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process as a crash would."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def invocations(self, function: str) -> list[list[dict[str, Any]]]:
        """Return the messages of each invocation of a function."""
        lines = [json.loads(line) for line in self._notes.read_text().splitlines()]
        return [line["messages"] for line in lines if line["function"] == function]

    def messages(self, function: str) -> list[dict[str, Any]]:
        """Return the messages of all invocations of a function."""
        return [message for messages in self.invocations(function) for message in messages]

    def bodies(self, function: str) -> list[str]:
        """Return the bodies of all messages that a function got."""
        return [message["body"] for message in self.messages(function)]

    def log(self) -> str:
        """Return what the host has logged."""
        return self._log.read_text()

    def wait_for(self, condition: Callable[[], object], seconds: float = 60, every: float = 0.05) -> None:
        """Wait until the condition holds, looking *every* so often; fail with the host's log when it does not."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"did not happen within {seconds} s; the host's log:\n{self.log()[-3000:]}"
            time.sleep(every)
