"""The deployed app: what `func` uploads, and that requirements.txt installs what it imports."""

import json
import re
from datetime import timedelta
from fnmatch import fnmatch

import pytest

from shared.editors.lookup.tables import DUCKDB
from shared.line.deadline import LONGEST_HOLD
from shared.tasks.files import load
from tests.architecture.imports import OURS, ROOT, is_standard, modules, within

UPLOADED = {"function_app.py", "host.json", "requirements.txt", "config", "functions", "shared"}

# Import name → distribution. azure.core comes with every SDK of Azure.
DISTRIBUTIONS = {
    "aiohttp": "aiohttp",
    "azure.core": "azure-servicebus",
    "azure.eventhub": "azure-eventhub",
    "azure.functions": "azure-functions",
    "azure.identity": "azure-identity",
    "azure.keyvault.secrets": "azure-keyvault-secrets",
    "azure.monitor.opentelemetry.exporter": "azure-monitor-opentelemetry-exporter",
    "azure.servicebus": "azure-servicebus",
    "azure.storage.blob": "azure-storage-blob",
    "azure.storage.queue": "azure-storage-queue",
    "azurefunctions.extensions.base": "azurefunctions-extensions-base",
    "brotli": "Brotli",
    "cbor2": "cbor2",
    "confluent_kafka": "confluent-kafka",
    "certifi": "certifi",
    "cryptography": "cryptography",
    "fastavro": "fastavro",
    "joserfc": "joserfc",
    "google.protobuf": "protobuf",
    "isal": "isal",
    "jmespath": "jmespath",
    "grpc": "grpcio",
    "jsonschema": "jsonschema",
    "jsonschema_specifications": "jsonschema-specifications",
    "msgpack": "msgpack",
    "msgspec": "msgspec",
    "opentelemetry": "opentelemetry-api",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "pydantic": "pydantic",
    "pydantic_core": "pydantic",
    "referencing": "referencing",
    "regex": "regex",
    "yaml": "PyYAML",
    "zstandard": "zstandard",
}

# Only an app whose tables are Parquet installs it: docs/decisions/0033.
ON_DEMAND = {"duckdb"}


def requirements(name: str) -> dict[str, str]:
    lines = ROOT.joinpath(name).read_text(encoding="utf-8").splitlines()
    return {
        distribution: version
        for distribution, _, version in (line.partition("==") for line in lines if re.match(r"\w", line))
    }


def test_only_the_app_is_uploaded() -> None:
    lines = ROOT.joinpath(".funcignore").read_text(encoding="utf-8").splitlines()
    ignored = [line.rstrip("/") for line in lines if line and not line.startswith("#")]
    uploaded = {entry.name for entry in ROOT.iterdir() if not any(fnmatch(entry.name, pattern) for pattern in ignored)}
    assert uploaded <= UPLOADED


def test_examples_stay_here() -> None:
    lines = ROOT.joinpath(".funcignore").read_text(encoding="utf-8").splitlines()
    assert "config/examples/" in lines
    assert all(place.startswith(f"{ROOT}/config/tasks/") for place in load(ROOT / "config").places.values())


@pytest.mark.parametrize("name", ["requirements.txt", "requirements-dev.txt"])
def test_every_requirement_is_pinned(name: str) -> None:
    assert requirements(name)
    assert [distribution for distribution, version in requirements(name).items() if not version] == []


def test_a_batch_is_held_for_less_than_the_host_lets_a_function_run() -> None:
    text = json.loads(ROOT.joinpath("host.json").read_text(encoding="utf-8"))["functionTimeout"]
    hours, minutes, seconds = map(int, text.split(":"))
    assert timedelta(hours=hours, minutes=minutes, seconds=seconds) - LONGEST_HOLD >= timedelta(minutes=5)


def test_requirements_install_what_the_deployed_app_imports() -> None:
    installed = requirements("requirements.txt")
    imports = {
        name
        for names in modules("function_app", "functions", "shared").values()
        for name in names
        if not is_standard(name) and not within(name, OURS) and name not in ON_DEMAND
    }
    missing = {
        name
        for name in imports
        if not any(within(name, (known,)) and needed in installed for known, needed in DISTRIBUTIONS.items())
    }
    assert missing == set()


def test_what_an_app_is_reported_to_install_is_what_is_tested() -> None:
    tested = requirements("requirements-dev.txt")
    assert f"pip install duckdb=={tested['duckdb']}" == DUCKDB
