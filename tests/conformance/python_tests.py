"""The live tests in the source distributions of azure-servicebus and azure-eventhub, against the broker."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.conformance.brokers import ROOT, namespace, running_broker
from tests.conformance.known import reason_for
from tests.conformance.result import Result, Skipped

LIVE = Path(__file__).parent / "live"
# What the tests import beside the packages of the project.
REQUIREMENTS = ("pytest-asyncio==1.3.0", "pytest-timeout==2.4.0", "azure-eventhub-checkpointstoreblob-aio==1.2.0")
OPTIONS = (
    "--tb=short",
    "-q",
    "-p",
    "busway_live",
    "-p",
    "busway_report",
    "-p",
    "no:cacheprovider",
    "-o",
    "asyncio_mode=auto",
    "-W",
    "default",
    "--timeout=600",  # two tests wait for more than five minutes
)
# Folders whose modules the tests import.
IMPORTED = ("tests", "tests/async_tests", "tests/mgmt_tests", "tests/mgmt_tests/async")
# Most of the time they wait.
AT_ONCE = ("-n", "6", "--dist", "load")
# The tests of the administration delete all entities, so they have a broker of their own and run one by one.
SERVICE_BUS = ("tests", *(f"--ignore=tests/{name}" for name in ("perf_tests", "unittests", "mgmt_tests")), *AT_ONCE)
ADMINISTRATION = ("tests/mgmt_tests",)
EVENT_HUBS = (*AT_ONCE, "tests/livetest", "tests/pyamqp_tests/synctests", "tests/pyamqp_tests/asynctests")


@dataclass(frozen=True, slots=True)
class Run:
    """A run of pytest with the tests of a package, against a broker of its own."""

    name: str
    package: str
    namespaces: Mapping[str, object]
    options: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def part(self) -> str:
        """The name of the part of the suite."""
        return f"python-{self.name}"


def service_bus(folder: Path, words: str) -> Iterator[Result]:
    """Run the tests of azure-servicebus."""
    yield from _results(
        Run("service-bus", "azure-servicebus", {"Namespaces": [namespace()]}, SERVICE_BUS), folder, words
    )


def administration(folder: Path, words: str) -> Iterator[Result]:
    """Run the tests of azure-servicebus for the administration client."""
    run = Run("administration", "azure-servicebus", {"Namespaces": [namespace()]}, ADMINISTRATION)
    yield from _results(run, folder, words)


def event_hubs(folder: Path, words: str) -> Iterator[Result]:
    """Run the tests of azure-eventhub."""
    settings = {
        "AZURE_SUBSCRIPTION_ID": "local",
        "EVENTHUB_RESOURCE_GROUP": "local",
        "EVENT_HUB_NAMESPACE": "localhost",
        "EVENT_HUB_ENDPOINT_SUFFIX": "",
    }
    run = Run("event-hubs", "azure-eventhub", {"NamespaceConfig": [namespace()]}, EVENT_HUBS, settings)
    yield from _results(run, folder, words)


def _results(run: Run, folder: Path, words: str) -> Iterator[Result]:
    source = _source(run.package, folder)
    packages = folder / "packages"
    install(packages, *REQUIREMENTS)
    report = folder / f"{run.name}.jsonl"
    report.unlink(missing_ok=True)
    with running_broker(folder / f"{run.name}-broker", run.namespaces) as ports:
        environment = {
            **os.environ,
            **ports.environment,
            **run.settings,
            "PYTHONPATH": os.pathsep.join(map(str, (LIVE, packages, *(source / each for each in IMPORTED)))),
            "BUSWAY_PACKAGES": str(packages),
            "BUSWAY_REPORT": str(report),
            "AZURE_TEST_RUN_LIVE": "true",
            "SERVICEBUS_ENDPOINT_SUFFIX": "",
            "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE": "localhost",
            "SERVICEBUS_CONNECTION_STR": ports.tls_connection_string,
            "SERVICEBUS_SAS_POLICY": ports.environment["BUSWAY_KEY_NAME"],
            "SERVICEBUS_SAS_KEY": ports.environment["BUSWAY_KEY"],
        }
        command = [sys.executable, "-m", "pytest", *OPTIONS, f"--rootdir={source}"]
        log = folder / f"{run.name}.log"

        def test(*options: str) -> list[Result]:
            with log.open("a", encoding="utf-8") as output:
                subprocess.run(  # noqa: S603 - pytest
                    [*command, *options], cwd=source, env=environment, stdout=output, stderr=output, check=False
                )
            if not report.exists():
                raise Skipped(f"pytest did not run: see {log}")
            return results(report)

        log.unlink(missing_ok=True)
        found = test(*run.options, *(("-k", words) if words else ()))
        again = {
            result.name: result
            for result in found
            if result.outcome == "failed" and not reason_for(run.part, result.name)
        }
        if again:
            # Some have locks of five seconds, which end too soon while others take the processor.
            report.rename(report.with_suffix(".first.jsonl"))
            passed = {result.name for result in test(*again) if result.outcome == "passed"}
            found = [replace(result, outcome="passed alone") if result.name in passed else result for result in found]
    yield from found


def _source(package: str, folder: Path) -> Path:
    """Return the folder of a source distribution in the version that the project uses, downloaded once."""
    name = f"{package.replace('-', '_')}-{importlib.metadata.version(package)}"
    if not (folder / name).exists():
        requirement = f"{package}=={importlib.metadata.version(package)}"
        options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(folder), requirement]
        _pip("download", *options)
        with tarfile.open(folder / f"{name}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        # The tests are for the packages that are installed, not for these.
        (folder / name / "azure").rename(folder / name / "sources-of-azure")
    return folder / name


def install(folder: Path, *requirements: str) -> None:
    """Install packages into a folder of their own, once; Skipped if that fails."""
    if not folder.exists():
        _pip("install", "--no-deps", "--target", str(folder), *requirements)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - pip
    if done.returncode:
        raise Skipped(f"pip {arguments[0]} failed: {done.stderr.strip().splitlines()[-1]}")


def results(report: Path) -> list[Result]:
    """Return what pytest has reported of each test; a test that failed in its setup too, or only there, has failed."""
    found: dict[str, Result] = {}
    for line in report.read_text(encoding="utf-8").splitlines():
        each = Result(**json.loads(line))
        if each.name not in found or each.outcome == "failed":
            found[each.name] = each
    return [*found.values()]
