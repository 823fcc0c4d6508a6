"""
Microsoft's storage emulator, in memory, on free ports.

Node.js takes most of a second of processor time to start it, so each process of the tests starts it once, with an
account for each that asks. What needs a port or a certificate has its own process.
"""

import atexit
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest

AZURITE = Path(__file__).parents[1] / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
# That of the emulator's well-known account; it opens nothing else.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_WELL_KNOWN = "devstoreaccount1"
_PROGRAMS = AZURITE.parents[1]
_SERVICES = ("Blob", "Queue", "Table")
_ACCOUNTS = tuple(f"account{number}" for number in range(500))
_numbers = itertools.count()


def _account(name: str) -> str:
    return f"DefaultEndpointsProtocol=http;AccountName={name};AccountKey={_KEY};"


ACCOUNT = _account(_WELL_KNOWN)


@contextmanager
def running_azurite(folder: Path, port: int = 0) -> Iterator[str]:
    """Run the blob service until the context ends; give its connection string."""
    with _running(folder, AZURITE, "successfully listens on", f"--blobPort={port}") as (url,):
        yield f"{ACCOUNT}BlobEndpoint={url}/{_WELL_KNOWN};"


@contextmanager
def running_queues(folder: Path, certificate: Path) -> Iterator[str]:
    """Run the queue service with *certificate*, which takes tokens, until the context ends; give its string."""
    tls = (f"--cert={certificate}", f"--key={certificate}", "--oauth=basic")
    with _running(folder, _PROGRAMS / "queue" / "main.js", "successfully listens on", "--queuePort=0", *tls) as (url,):
        yield f"{ACCOUNT}QueueEndpoint={url}/{_WELL_KNOWN};"


def blob_account() -> str:
    """Return the connection string of an account for blobs that nobody else has."""
    return _new_account("Blob")


def well_known_account() -> str:
    """Return the connection string of the emulator's own account, which all tests of a process share."""
    return f"{ACCOUNT}BlobEndpoint={_shared()['Blob']}/{_WELL_KNOWN};"


def queue_account() -> str:
    """Return the connection string of an account for queues that nobody else has."""
    return _new_account("Queue")


def table_account() -> str:
    """Return the connection string of an account for tables that nobody else has."""
    return _new_account("Table")


def _new_account(service: str) -> str:
    name = _ACCOUNTS[next(_numbers)]
    return f"{_account(name)}{service}Endpoint={_shared()[service]}/{name};"


@cache
def _shared() -> dict[str, str]:
    """Run the emulator until this process ends; return the addresses of its services."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ports = [f"--{service.lower()}Port=0" for service in _SERVICES]
    urls = stack.enter_context(_running(folder, _PROGRAMS / "azurite.js", "successfully listening at", *ports, count=3))
    return dict(zip(_SERVICES, urls, strict=True))


@contextmanager
def _running(folder: Path, program: Path, listens: str, *options: str, count: int = 1) -> Iterator[list[str]]:
    """Run a program of the emulator until the context ends; give the *count* addresses behind the words *listens*."""
    node = shutil.which("node")
    if node is None or not program.exists():
        pytest.skip("needs node and the npm package azurite")
    command = [node, str(program), *options, "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    accounts = ";".join(f"{name}:{_KEY}" for name in (_WELL_KNOWN, *_ACCOUNTS))
    with subprocess.Popen(  # noqa: S603 - our own package
        command, stdout=subprocess.PIPE, text=True, cwd=folder, env={**os.environ, "AZURITE_ACCOUNTS": accounts}
    ) as azurite:
        assert azurite.stdout is not None
        try:
            urls: list[str] = []
            for line in azurite.stdout:
                if found := re.search(rf"{listens} (http\S+)", line):
                    urls.append(found[1])
                if len(urls) == count:
                    break
            else:
                pytest.fail("azurite has ended before it listened")
            # It prints every request, and blocks if nothing reads the output.
            threading.Thread(target=azurite.stdout.read, daemon=True).start()
            yield urls
        finally:
            azurite.kill()
            azurite.wait()
