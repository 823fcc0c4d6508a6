"""Programs of scenarios, each with an SDK whose tests are not published with it: JavaScript, Java, Go."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conformance.brokers import ROOT, namespace, running_broker
from tests.conformance.result import Result, Skipped

HERE = Path(__file__).parent
SECONDS = 600

_QUEUES = ("plain", "batch", "settle", "deferred", "dead", "scheduled", "peek", "source", "target")
_SESSIONS = {"Name": "sessions", "Properties": {"RequiresSession": True}}
_TOPIC = {"Name": "news", "Subscriptions": [{"Name": "all"}, {"Name": "filtered"}]}
_BUS = {
    # The scenarios read the counts of what they have just sent.
    "Namespaces": [
        namespace(CountsLag="PT0S", Queues=[*({"Name": name} for name in _QUEUES), _SESSIONS], Topics=[_TOPIC])
    ]
}
_HUBS = {
    "NamespaceConfig": [namespace(Entities=[{"Name": name, "PartitionCount": 2} for name in ("hub", "checkpoints")])]
}


def javascript(folder: Path, words: str) -> Iterator[Result]:
    """Run the scenarios with @azure/service-bus and @azure/event-hubs."""
    node = _program("node")
    if not (ROOT / "node_modules" / "@azure" / "event-hubs").exists():
        raise Skipped("the npm packages are missing: make installed")
    yield from _run([node, str(HERE / "javascript" / "scenarios.mjs")], folder / "javascript", words)


def java(folder: Path, words: str) -> Iterator[Result]:
    """Run the scenarios with azure-messaging-servicebus and azure-messaging-eventhubs, which Maven fetches."""
    program, maven = _program("java"), _program("mvn")
    jars = folder / "java" / "jars"
    fetch = [maven, "--batch-mode", "--quiet", "--file", str(HERE / "java" / "pom.xml")]
    _prepare([*fetch, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], HERE)
    yield from _run([program, "-cp", f"{jars}/*", str(HERE / "java" / "Scenarios.java")], folder / "java", words)


def go(folder: Path, words: str) -> Iterator[Result]:
    """Run the scenarios with azservicebus and azeventhubs, which Go fetches in the versions of go.sum."""
    binary = folder / "go" / "scenarios"
    _prepare([_program("go"), "build", "-o", str(binary), "."], HERE / "go")
    yield from _run([str(binary)], folder / "go", words)


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Skipped(f"{name} is not installed")
    return found


def _prepare(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603 - see above
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Skipped(f"{Path(command[0]).name} failed: {lines[0]}")


def _run(command: Sequence[str], folder: Path, words: str) -> Iterator[Result]:
    with running_broker(folder / "bus", _BUS) as bus, running_broker(folder / "hubs", _HUBS) as hubs:
        environment = {
            **os.environ,
            **bus.environment,
            "BUSWAY_HUBS_CONNECTION_STRING": hubs.environment["BUSWAY_CONNECTION_STRING"],
        }
        with (folder / "errors.log").open("w", encoding="utf-8") as errors:
            done = subprocess.run(  # noqa: S603 - our own programs
                command,
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=SECONDS,
                check=False,
            )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not found:
        yield Result("the program", "failed", f"it ended with {done.returncode}; see {folder / 'errors.log'}")
    yield from (Result(**each) for each in found if words in each["name"])
