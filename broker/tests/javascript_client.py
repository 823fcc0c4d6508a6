"""Runs the scripts of `javascript/`, which use the clients of Microsoft for JavaScript."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def run_script(name: str, *arguments: str, package: str = "service-bus", authority: Path | None = None) -> None:
    """Run a script and check that it finds what it expects; skip the test without Node.js or its *package*."""
    node = shutil.which("node")
    if node is None or not (_HERE.parents[1] / "node_modules" / "@azure" / package).exists():
        pytest.skip(f"needs node and the npm package @azure/{package}")
    trusted = {} if authority is None else {"NODE_EXTRA_CA_CERTS": str(authority)}
    run = subprocess.run(  # noqa: S603 - a script of this folder
        [node, _HERE / "javascript" / f"{name}.mjs", *arguments],
        env={**os.environ, **trusted},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
