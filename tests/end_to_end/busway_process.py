"""The `busway` command in a process of its own, as a person or a script would start it."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
PACKAGES = os.pathsep.join((str(ROOT), str(ROOT / "clients")))

_END_SECONDS = 40


class BuswayProcess:
    """`busway` with its arguments; ends with its context."""

    def __init__(self, *arguments: str, folder: Path = ROOT, settings: dict[str, str] | None = None) -> None:
        # A file, because nothing reads while it runs: it would stand still once its log has filled a pipe.
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - ends with this context
        self._process = subprocess.Popen(  # noqa: S603 - the arguments are the test's own
            [sys.executable, "-m", "cli", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PACKAGES, **(settings or {})},
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._errors:
            if self._process.poll() is not None:
                return
            # Asked first: it ends what it has started, which would outlive it if it were killed.
            self._process.terminate()
            try:
                self._process.communicate(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
                raise

    def lines(self, count: int, seconds: float = 90) -> list[str]:
        """Return the next *count* lines of its standard output; one that is late ends the process."""
        output = self._process.stdout
        assert output is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        found = [output.readline() for _ in range(count)]
        timer.cancel()
        assert all(found), f"ended, or was ended after {seconds} s: {self._end()[1]}"
        return [line.rstrip("\n") for line in found]

    def stop(self, number: int = signal.SIGTERM, seconds: float = 20) -> tuple[int, float]:
        """Send a signal; return the exit code and how many seconds it took to end."""
        started = time.monotonic()
        self._process.send_signal(number)
        self._process.communicate(timeout=seconds)
        return self._process.returncode, time.monotonic() - started

    def result(self, seconds: float = 20) -> tuple[int, str, str]:
        """Wait for the end; return the exit code, standard output and standard error."""
        out, err = self._end(seconds)
        return self._process.returncode, out, err

    def _end(self, seconds: float | None = None) -> tuple[str, str]:
        out, _ = self._process.communicate(timeout=seconds)
        self._errors.seek(0)
        return out, self._errors.read()
