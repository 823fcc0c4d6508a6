"""Which module may import which foreign package; import-linter holds the layers."""

import pytest

from tests.architecture.imports import OURS, ROOT, imported_names, is_standard, modules, within

APP = ("function_app", "functions", "shared", "cli", "host", "busway_broker", "clients", "busway_reconcile")

BROKER = (
    *("busway_broker", "shared.amqp", "shared.rules"),
    *("shared.clock", "shared.durations", "shared.errors", "shared.printable"),
)

ONLY_THERE = {
    "aiohttp": (
        "host",
        "cli.local_services.event_grid",
        "busway_broker.admin",
        "busway_broker.http_server",
        "busway_broker.web_sockets",
        "shared.nightly",
        "clients",
    ),
    "cryptography": ("busway_broker.admin", "shared.editors", "clients"),
    "defusedxml": ("busway_broker.admin",),
    "dns": ("clients", "cli.failover"),
    "azure.functions": ("function_app", "functions"),
    "azurefunctions": ("functions", "host"),
    "azure_functions_runtime": ("host",),
    "azure.monitor": ("shared.telemetry",),
    "opentelemetry": ("shared.telemetry",),
    "brotli": ("shared.codecs",),
    "cbor2": ("shared.codecs",),
    "certifi": ("shared.ends",),
    "confluent_kafka": ("shared.ends.kafka.producer", "cli.local_services.kafka", "cli.kafka_consumer"),
    "fastavro": ("shared.codecs", "shared.editors", "busway_reconcile.read.capture"),
    "google": ("shared.codecs", "host.settlement"),
    "grpc": ("functions.settlement", "host.settlement"),
    "jmespath": ("shared.editors",),
    "joserfc": ("shared.editors",),
    "duckdb": ("shared.editors",),
    "jsonschema": ("shared.editors",),
    "jsonschema_specifications": ("shared.editors",),
    "msgpack": ("shared.codecs",),
    "msgspec": (
        "shared.codecs",
        "shared.protocols",
        "shared.ends.amqp.link",
        "shared.message",
        "shared.line",
        "shared.journal",
        "shared.resend",
        "shared.losses",
        "shared.status",
        "functions.answers",
        "functions.dead_letters",
        "cli.commands.status",
        "cli.commands.schema",
    ),
    "zstandard": ("shared.codecs",),
    "pydantic": ("shared.tasks", "shared.editors"),
    "pydantic_core": ("shared.tasks",),
    "referencing": ("shared.editors",),
    "regex": ("shared.editors",),
    # The SDKs. functions/ gets bytes from the worker and hands them on.
    "azure": (
        "shared.access",
        "shared.ends",
        "shared.resend.numbering",
        "shared.resend.receiver",
        "shared.stores",
        "shared.nightly",
        "clients",
        "host",
        "cli",
        "busway_reconcile.container",
        "busway_reconcile.lease",
        "busway_reconcile.container",
        "busway_reconcile.read.staging",
    ),
}

ONLY_THESE = {
    "shared.message": (
        *("shared.message", "shared.rules", "shared.amqp"),
        *("shared.errors", "shared.clock", "shared.printable", "msgspec"),
    ),
    "shared.amqp": ("shared.amqp", "shared.errors", "shared.clock"),
    "shared.errors": ("shared.errors",),
    "shared.clock": ("shared.clock",),
    "busway_broker.core": BROKER,
    "busway_broker.protocol": BROKER,
    "busway_broker": (*BROKER, "aiohttp", "cryptography", "defusedxml", "pytest", "testcontainers", "uvloop"),
}


@pytest.mark.parametrize("package", ONLY_THERE)
def test_foreign_package_stays_where_it_belongs(package: str) -> None:
    narrower = tuple(other for other in ONLY_THERE if other.startswith(f"{package}."))
    strays = {
        module: name
        for module, names in modules(*APP).items()
        for name in names
        if within(name, (package,)) and not within(name, narrower) and not within(module, ONLY_THERE[package])
    }
    assert strays == {}


# Modules that import private names of the Azure SDKs, each with the test that fails if such a name changes.
PRIVATE_IMPORTS = {
    "shared.ends.event_hubs.internals": "contracts/test_event_hubs_internals.py",
    "shared.ends.service_bus.internals": "contracts/test_service_bus_internals.py",
    "shared.ends.service_bus.link": "wire/test_transfers_in_flight.py",
    "shared.ends.event_hubs.receiver": "contracts/test_receive_seam.py",
    # `busway demo` compares messages at the level of AMQP types, which the public API does not show.
    "cli.demo.exact_types": "end_to_end/test_demo.py",
}


def test_private_names_of_the_sdks_are_imported_in_few_modules_with_contract_tests() -> None:
    importing = {
        module
        for module, names in modules(*APP).items()
        for name in names
        if within(name, ("azure",)) and any(part.startswith("_") for part in name.split("."))
    }
    assert importing == set(PRIVATE_IMPORTS)
    assert {name for name in PRIVATE_IMPORTS.values() if not (ROOT / "tests" / name).exists()} == set()


@pytest.mark.parametrize("root", ONLY_THESE)
def test_module_needs_only_the_standard_library_and_these(root: str) -> None:
    found = modules(root)
    assert found, f"{root} is not there any more: correct the table"
    strays = {
        module: name
        for module, names in found.items()
        for name in names
        if not is_standard(name) and not within(name, ONLY_THESE[root])
    }
    assert strays == {}


def test_composition_root_is_above_all_and_knows_nothing_of_the_laptop() -> None:
    above = {
        module: name
        for module, names in modules(*APP).items()
        for name in names
        if within(name, ("function_app",)) and module != "function_app"
    }
    assert above == {}
    imported = {name for names in modules("function_app").values() for name in names}
    assert not {name for name in imported if within(name, ("cli", "host", "busway_broker", "benchmarks", "tests"))}


@pytest.mark.parametrize("root", ["clients", "busway_reconcile"])
def test_what_runs_elsewhere_uses_nothing_of_ours(root: str) -> None:
    others = tuple(name for name in OURS if name != root)
    strays = {module: name for module, names in modules(root).items() for name in names if within(name, others)}
    assert strays == {}


@pytest.mark.parametrize(
    ("source", "package", "names"),
    [
        ("import azure.functions as func", "shared", {"azure.functions"}),
        ("from azure import functions", "shared", {"azure.functions"}),
        ("from azure.functions import Blueprint", "shared", {"azure.functions.Blueprint"}),
        ("def late():\n    import pydantic", "shared", {"pydantic"}),
        ("from . import values", "shared.amqp", {"shared.amqp.values"}),
        ("from .values import Value", "shared.amqp", {"shared.amqp.values.Value"}),
        ("from .. import errors", "shared.amqp", {"shared.errors"}),
        ("from ..errors import ConfigError", "shared.amqp", {"shared.errors.ConfigError"}),
    ],
)
def test_every_way_to_import_is_seen(source: str, package: str, names: set[str]) -> None:
    assert imported_names(source, package) == names
