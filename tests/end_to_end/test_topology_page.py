"""docs/topology.md: the commands from two empty namespaces to a pair print what the page shows."""

import re
import shutil
import socket
from pathlib import Path

from shared.ends.service_bus.administration import EMULATOR_ADMINISTRATION_PORT, EMULATOR_PORT
from tests.end_to_end.busway_process import ROOT
from tests.end_to_end.shell import Shell

PAGE = (ROOT / "docs/topology.md").read_text(encoding="utf-8")
DISTANCE = EMULATOR_PORT - EMULATOR_ADMINISTRATION_PORT


def free_port() -> int:
    """Return a port that is free, as are the next one and the two for their administration."""
    for port in range(21_000, 60_000, 7):
        sockets = [socket.socket() for _ in range(4)]
        try:
            for each, number in zip(sockets, (port, port + 1, port - DISTANCE, port - DISTANCE + 1), strict=True):
                each.bind(("127.0.0.1", number))
        except OSError:
            continue
        finally:
            for each in sockets:
                each.close()
        return port
    raise RuntimeError("no free ports")


def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    found = re.search(r"<!-- run -->\n```sh\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    port = free_port()
    numbers = {"5672": port, "5673": port + 1, "5301": port - DISTANCE + 1}
    commands, printed = (
        re.sub("5672|5673|5301", lambda match: str(numbers[match[0]]), text) for text in found.groups()
    )
    commands = commands.replace("--port ", f"--admin-port {port - DISTANCE} --port ")
    shutil.copytree(ROOT / "config/examples/all-active", tmp_path / "config/examples/all-active")
    done = Shell(tmp_path).run(f"trap 'kill %1 2> /dev/null || true' EXIT\n{commands}")
    assert (done.stdout, done.returncode) == (printed, 0), done.stderr
