"""The commands of a page in a shell, where `busway` and `python` are those of this repository."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from busway import PACKAGES


class Shell:
    """Runs commands in *folder*, with the programs in *programs*."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.folder = folder
        self._programs = programs or folder / "bin"
        self._programs.mkdir(parents=True)
        for name, arguments in (("busway", "-m cli "), ("python", "")):
            command = self._programs / name
            command.write_text(
                f'#!/bin/sh\nPYTHONPATH={shlex.quote(PACKAGES)} exec {shlex.quote(sys.executable)} {arguments}"$@"\n'
            )
            command.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment in which the programs are found."""
        return {**os.environ, "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}"}

    def run(self, commands: str, settings: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run *commands* until one fails; standard output and standard error are separate."""
        return subprocess.run(  # noqa: S603 - the commands are the page's own
            ["/bin/bash", "-e", "-c", commands],
            cwd=self.folder,
            env={**self.environment, **(settings or {})},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )


def assert_shown(printed: str, page: str) -> None:
    """Assert that *printed* is what the page shows, where `…` is any text."""
    expected = ".*".join(map(re.escape, page.split("…")))
    assert re.fullmatch(expected, printed), f"expected:\n{page}\ngot:\n{printed}"
