"""Brokers as processes on free ports, which tools/other-brokers fetches."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

ROOT = Path(__file__).parents[2]
FETCHED = Path(os.environ.get("BUSWAY_OTHER_BROKERS") or ROOT / "build/other-brokers")
USER, PASSWORD = "busway", "s3cret/:%"
ENCODED = "s3cret%2F%3A%25"
_READY_SECONDS = 90.0


class OtherBroker(ABC):
    """A broker whose data survive a kill."""

    def __init__(self, folder: Path) -> None:
        """Keep everything in *folder*."""
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._queues = itertools.count()

    @property
    def url(self) -> str:
        """The URL with user and password."""
        return f"amqp://{USER}:{ENCODED}@127.0.0.1:{self.port}"

    def queue(self) -> str:
        """Return the address of a queue that no test has used."""
        return self.address(f"q{next(self._queues)}")

    @abstractmethod
    def address(self, queue: str) -> str:
        """Return the address of a queue."""

    @abstractmethod
    def command(self) -> tuple[list[str], dict[str, str]]:
        """Return the command of the process and its environment."""

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        command, environment = self.command()
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - a fixed command
                command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if time.monotonic() > end or self.process.poll() is not None:
                self.kill()
                raise RuntimeError(f"{type(self).__name__} did not start: see {self.folder}/log.txt")
            time.sleep(0.2)

    def kill(self) -> None:
        """Kill it and its children with SIGKILL, and wait for its end."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.settimeout(2)
                connection.sendall(b"AMQP\x03\x01\x00\x00")
                return connection.recv(8) == b"AMQP\x03\x01\x00\x00"
        except OSError:
            return False


def free_port() -> int:
    """Return a port that nothing uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
