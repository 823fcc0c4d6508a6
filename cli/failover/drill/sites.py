"""The two sites, as separate processes so that one can be killed, and the Functions host between them."""

import contextlib
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from busway import PACKAGES, ROOT
from cli.children import Child
from cli.stack import busway

NAMES = ("west", "east")

_SITE = Path(__file__).parent / "site"
_READY_SECONDS = 60.0


@dataclass
class Sites:
    """The running sites: their connection strings, and the folder of their configuration."""

    folder: Path
    connection_strings: dict[str, str]
    children: dict[str, Child]
    work: Path

    async def cut(self, name: str) -> None:
        """End a site as a power failure would."""
        child = self.children.pop(name)
        os.kill(child.pid, signal.SIGKILL)
        await child.stop()

    async def restore(self, name: str) -> None:
        """Restart a site on its port, with the messages on its disk."""
        port = re.search(r"localhost:(\d+)|127\.0\.0\.1:(\d+)", self.connection_strings[name])
        assert port is not None  # noqa: S101 - the broker reported it
        self.children[name], _ = await _broker(name, self.work, int(port[1] or port[2]))


@contextlib.asynccontextmanager
async def running_sites(work: Path) -> AsyncIterator[Sites]:
    """Start both sites and the host, with everything that they write in *work*; always end them."""
    for name in ("config", *NAMES):
        shutil.rmtree(work / name, ignore_errors=True)
    folder = work / "config"
    shutil.copytree(_SITE, folder)
    sites = Sites(folder, {}, {}, work)
    try:
        for name in NAMES:
            sites.children[name], sites.connection_strings[name] = await _broker(name, work, 0)
        settings = {name.upper(): text for name, text in sites.connection_strings.items()}
        environment = {**settings, "BUSWAY_CONFIG": str(folder), "PYTHONPATH": PACKAGES}
        host = await Child.start("host", busway("host"), work / "host.log", ROOT, environment)
        sites.children["host"] = host
        await host.matches(r"^ready(.*)$", 1, _READY_SECONDS)
        yield sites
    finally:
        for child in reversed(list(sites.children.values())):
            await child.stop()


async def _broker(name: str, work: Path, port: int) -> tuple[Child, str]:
    config = work / "config" / "entities" / f"{name}.json"
    ports = ["--port", str(port), "--admin-port", "0"]
    command = [*busway("broker"), "--config", str(config), *ports, "--data", str(work / name)]
    child = await Child.start(name, command, work / f"{name}.log", ROOT, {"PYTHONPATH": PACKAGES})
    try:
        (line,) = await child.matches(r"^ready (\S+) (.+)$", 1, _READY_SECONDS)
    except BaseException:
        await child.stop()
        raise
    return child, line[2]
