"""Microsoft's storage emulator as a process, in memory, on a free port."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

AZURITE = Path(__file__).parents[1] / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
# The emulator's well-known account; its key opens nothing else.
ACCOUNT = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
)
_PROGRAMS = AZURITE.parents[1]


@contextmanager
def running_azurite(folder: Path, port: int = 0) -> Iterator[str]:
    """Run the blob service until the context ends; give its connection string."""
    with _running(folder, AZURITE, "successfully listens on", f"--blobPort={port}") as url:
        yield f"{ACCOUNT}BlobEndpoint={url}/devstoreaccount1;"


@contextmanager
def running_queues(folder: Path, certificate: Path | None = None) -> Iterator[str]:
    """Run the queue service until the context ends; give its connection string. With *certificate* it takes tokens."""
    tls = [] if certificate is None else [f"--cert={certificate}", f"--key={certificate}", "--oauth=basic"]
    with _running(folder, _PROGRAMS / "queue" / "main.js", "successfully listens on", "--queuePort=0", *tls) as url:
        yield f"{ACCOUNT}QueueEndpoint={url}/devstoreaccount1;"


@contextmanager
def running_tables(folder: Path) -> Iterator[str]:
    """Run the table service, which tells its port only beside the others, until the context ends; give its string."""
    ports = ("--blobPort=0", "--queuePort=0", "--tablePort=0")
    with _running(folder, _PROGRAMS / "azurite.js", "Table service is successfully listening at", *ports) as url:
        yield f"{ACCOUNT}TableEndpoint={url}/devstoreaccount1;"


@contextmanager
def _running(folder: Path, program: Path, listens: str, *ports: str) -> Iterator[str]:
    """Run a program of the emulator until the context ends; give the address behind the words *listens*."""
    node = shutil.which("node")
    if node is None or not program.exists():
        pytest.skip("needs node and the npm package azurite")
    command = [node, str(program), *ports, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as azurite:  # noqa: S603 - our own package
        assert azurite.stdout is not None
        try:
            for line in azurite.stdout:
                if found := re.search(rf"{listens} (http\S+)", line):
                    # It prints every request, and blocks if nothing reads the output.
                    threading.Thread(target=azurite.stdout.read, daemon=True).start()
                    yield found[1]
                    break
            else:
                pytest.fail("azurite has ended before it listened")
        finally:
            azurite.kill()
            azurite.wait()
