"""The process of `busway host`."""

import asyncio
import logging
import sys
from pathlib import Path

from cli.output import fail, print_ready
from local.host.host import Host, run
from local.host.platform import Platform
from shared.errors import ConfigError


def run_host(*, wire: bool, http_port: int | None, platform: Platform) -> None:
    """Run the function app in the current folder until SIGTERM or SIGINT."""
    folder = Path.cwd()
    if not (folder / "function_app.py").exists():
        fail([f"{folder}: no function_app.py here; run this command in the folder of a function app"])
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # At INFO the SDK logs every link and many frames.
    logging.getLogger("azure").setLevel(logging.WARNING)

    def on_ready(running: Host) -> None:
        if running.http_port is not None:
            # Before the line that a parent process waits for.
            print(f"http http://127.0.0.1:{running.http_port}", file=sys.stderr, flush=True)
        print_ready(*(each.name for each in running.functions if each.trigger["type"] != "httpTrigger"))

    try:
        asyncio.run(run(folder, wire=wire, http_port=http_port, platform=platform, on_ready=on_ready))
    except ConfigError as error:
        fail(error.problems)
