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


@contextmanager
def running_azurite(folder: Path, port: int = 0) -> Iterator[str]:
    """Run the blob service until the context ends; give its connection string."""
    node = shutil.which("node")
    if node is None or not AZURITE.exists():
        pytest.skip("needs node and the npm package azurite")
    options = [f"--blobPort={port}", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with subprocess.Popen([node, str(AZURITE), *options], stdout=subprocess.PIPE, text=True, cwd=folder) as azurite:  # noqa: S603 - our own package
        assert azurite.stdout is not None
        try:
            for line in azurite.stdout:
                if found := re.search(r"successfully listens on (http\S+)", line):
                    # It prints every request, and blocks if nothing reads the output.
                    threading.Thread(target=azurite.stdout.read, daemon=True).start()
                    yield f"{ACCOUNT}BlobEndpoint={found[1]}/devstoreaccount1;"
                    break
            else:
                pytest.fail("azurite has ended before it listened")
        finally:
            azurite.kill()
            azurite.wait()


@contextmanager
def running_queues(folder: Path) -> Iterator[str]:
    """Run the queue service until the context ends; give its connection string."""
    node = shutil.which("node")
    program = AZURITE.parents[1] / "queue" / "main.js"
    if node is None or not program.exists():
        pytest.skip("needs node and the npm package azurite")
    options = ["--queuePort=0", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with subprocess.Popen([node, str(program), *options], stdout=subprocess.PIPE, text=True, cwd=folder) as azurite:  # noqa: S603 - our own package
        assert azurite.stdout is not None
        try:
            for line in azurite.stdout:
                if found := re.search(r"successfully listens on (http\S+)", line):
                    threading.Thread(target=azurite.stdout.read, daemon=True).start()
                    yield f"{ACCOUNT}QueueEndpoint={found[1]}/devstoreaccount1;"
                    break
            else:
                pytest.fail("azurite has ended before it listened")
        finally:
            azurite.kill()
            azurite.wait()


@contextmanager
def running_tables(folder: Path) -> Iterator[str]:
    """Run the table service, which tells its port only beside the others, until the context ends; give its string."""
    node = shutil.which("node")
    program = AZURITE.parents[1] / "azurite.js"
    if node is None or not program.exists():
        pytest.skip("needs node and the npm package azurite")
    options = ["--blobPort=0", "--queuePort=0", "--tablePort=0", "--inMemoryPersistence", "--disableTelemetry"]
    command = [node, str(program), *options, "--skipApiVersionCheck"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as azurite:  # noqa: S603 - our own package
        assert azurite.stdout is not None
        try:
            for line in azurite.stdout:
                if found := re.search(r"Table service is successfully listening at (http\S+)", line):
                    threading.Thread(target=azurite.stdout.read, daemon=True).start()
                    yield f"{ACCOUNT}TableEndpoint={found[1]}/devstoreaccount1;"
                    break
            else:
                pytest.fail("azurite has ended before it listened")
        finally:
            azurite.kill()
            azurite.wait()
