"""Tasks with output bindings: what is refused, what `busway try` shows, and that no client is opened."""

import asyncio
import json
from pathlib import Path

import azure.functions as func
import pytest
from azure.servicebus.aio import ServiceBusClient
from typer.testing import CliRunner

from cli.main import app
from functions.settlement import HostSettlement
from functions.tasks import register
from shared.assembly.pipelines import assemble
from shared.codecs.envelope import Event, encode_event
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import ConfigError
from shared.line.binding_output import collecting
from shared.line.pipeline import Pipeline
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.tasks.files import load
from tests.fakes import JournalInMemory
from tests.messages import delivered
from tests.unit.tasks.task_files import written

CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
vault: {kind: service-bus, secret: east-connection}
hub: {kind: event-hubs, setting: HUB}
"""
SEND = "task: copy\nsource: {connection: west, queue: orders}\nroutes: [%s]\n"
BINDING = "{target: {connection: east, queue: carrier}, via: binding}"
OPEN = "task: copy\nsource: {connection: east, queue: carrier, from: envelope%s}\nroutes: [%s]\n"
TO_EAST = "{target: {connection: east, queue: orders}}"


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (SEND % BINDING.replace("east", "vault"), "'vault' has a secret and no setting, which an output binding needs"),
        (OPEN % (", sessions: true", TO_EAST), "takes envelopes with sessions, expected no sessions"),
        (
            SEND % "{target: {connection: hub, hub: h, partition: 1}, via: binding}",
            "names a partition, which an output binding cannot",
        ),
        (SEND % TO_EAST.replace("}}", "}, body_only: true}"), "has body_only, expected only with `via: binding`"),
        (
            SEND % BINDING
            + "---\ntask: watch\nsource: {connection: east, queue: carrier}\n"
            + "tap: {of: copy, side: target, peek: '0 * * * * *'}\n",
            "'copy' sends there with `via: binding`: texts do not show which messages they are",
        ),
    ],
)
def test_what_a_binding_cannot_do_is_reported(tmp_path: Path, task: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected.replace("(", "\\(")):
        load(written(tmp_path, task, CONNECTIONS, "blob: {setting: JOURNAL}"))


def test_task_whose_routes_all_use_bindings_opens_no_client(tmp_path: Path) -> None:
    def never() -> ServiceBusClient:
        raise AssertionError("a client was opened")

    configuration = load(written(tmp_path, SEND % BINDING, CONNECTIONS))
    outputs = {alias: ServiceBusOutput(alias, never) for alias in configuration.connections}
    (task,) = assemble(configuration, outputs)
    journal = JournalInMemory()
    with collecting() as collected:
        asyncio.run(Pipeline(task, journal).run([delivered(1), delivered(2)]))
    assert [record.is_handed_over for record in journal.records] == [True, True]
    assert len(collected) == 1


def test_routes_with_equal_targets_share_an_output(tmp_path: Path) -> None:
    route = BINDING.replace("{target", "{when: 'x = 1', target")
    configuration = load(written(tmp_path, SEND % f"{route}, {BINDING}", CONNECTIONS))
    outputs = {alias: ServiceBusOutput(alias, lambda: pytest.fail("opened")) for alias in configuration.connections}
    (task,) = assemble(configuration, outputs)
    assert len(task.router.bindings) == 1


@pytest.mark.parametrize(("route", "bindings"), [(TO_EAST, []), (BINDING, ["serviceBus"])])
def test_only_tasks_with_bindings_declare_outputs(tmp_path: Path, route: str, bindings: list[str]) -> None:
    configuration = load(written(tmp_path, SEND % route, CONNECTIONS))
    outputs = {alias: ServiceBusOutput(alias, lambda: pytest.fail("opened")) for alias in configuration.connections}
    (task,) = assemble(configuration, outputs)
    functions = func.FunctionApp()
    register(functions, configuration.tasks[0], Pipeline(task, JournalInMemory()), "WEST", sessions=HostSettlement())
    (function,) = functions.get_functions()
    declared = function.get_dict_repr()["bindings"]
    assert [each["type"] for each in declared] == [*bindings, "serviceBusTrigger"]


def tried(path: Path, content: bytes) -> str:
    file = path / "messages.jsonl"
    file.write_text(content.decode())
    result = CliRunner().invoke(app, ["try", "copy", "--config", str(path), "--messages", str(file)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("options", "form"),
    [("", "a whole message in an envelope"), (", body_only: true", "the body as text, without properties")],
)
def test_dry_run_of_a_task_with_a_binding_shows_target_and_form(tmp_path: Path, options: str, form: str) -> None:
    task = SEND % BINDING.replace("via: binding", f"via: binding{options}")
    output = tried(written(tmp_path, task, CONNECTIONS), b'{"body": "text"}')
    assert f"  routes: to east/carrier through an output binding: {form}\n" in output
    assert "would be sent to east/carrier" in output
    assert "nothing was changed" in output


def test_dry_run_of_a_task_with_envelopes_shows_each_message(tmp_path: Path) -> None:
    contents = [Message.received(delivered(number), Origin("west", "orders")).encode() for number in (1, 2)]
    events = [encode_event(Event("west/orders", str(n), "service-bus", content)) for n, content in enumerate(contents)]
    line = json.dumps({"body": f"[{','.join(events)}]"}).encode()
    output = tried(written(tmp_path, OPEN % ("", TO_EAST), CONNECTIONS), line + b"\n")
    assert "open: 2 messages" in output
    assert "part 0: would be sent to east/orders" in output
    assert "part 1: would be sent to east/orders" in output
