"""`busway fault` against the local broker, and the function app of a stack that starts again when it is killed."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusQuotaExceededError
from typer.testing import Result

from cli.children import Child
from cli.local_faults import PID_FILE, STACK_SETTING
from tests.site import Site

# The SDK does not close what a fault has cut.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

type Run = Callable[..., Result]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("faults"), "east: {queues: [orders, payments]}", has_admin=True) as site:
        yield site


@pytest.fixture
def site(running: Site) -> Site:
    running.broker.reset()
    return running


@pytest.fixture
def run(site: Site) -> Run:
    return partial(site.run, "fault")


@pytest.fixture
def client(site: Site) -> ServiceBusClient:
    return ServiceBusClient.from_connection_string(site.settings["EAST"], retry_total=0)


def send(client: ServiceBusClient, queue: str = "orders") -> None:
    with client, client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("body"))


@pytest.mark.parametrize(("kind", "error"), [("full", ServiceBusQuotaExceededError), ("away", ServiceBusError)])
def test_an_entity_fails_until_the_fault_ends(
    run: Run, client: ServiceBusClient, kind: str, error: type[Exception]
) -> None:
    set_ = run(kind, "east/orders")
    assert (set_.exit_code, set_.stdout) == (0, f"east/orders: {kind}, until busway fault none\n"), set_.output
    with pytest.raises(error):
        send(client)
    send(client, "payments")
    assert run().stdout.startswith("east/orders: ")
    assert run("none").stdout == "no faults\n"
    send(client)


def test_answers_come_late_and_only_so_often(run: Run, client: ServiceBusClient) -> None:
    assert run("slow", "east", "--delay", "0.3", "--times", "2").exit_code == 0
    started = time.monotonic()
    send(client)
    assert time.monotonic() - started >= 0.3


def test_a_lock_is_lost_once_and_the_message_comes_again(run: Run, site: Site, client: ServiceBusClient) -> None:
    send(client)
    assert run("lock-lost", "east/orders").exit_code == 0
    for count in (1, 2):
        with site.receiver("east/orders") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            assert message.delivery_count == count - 1
            if count == 1:
                with pytest.raises(ServiceBusError):
                    receiver.complete_message(message)
            else:
                receiver.complete_message(message)
    assert site.active("east/orders") == 0


def test_a_fault_with_a_time_ends_by_itself(run: Run) -> None:
    done = run("full", "east", "--for", "0.1")
    assert done.stdout == "east: full for 0.1 s\neast: works again\n"
    assert run().stdout == "no faults\n"


@pytest.mark.parametrize(
    ("arguments", "settings", "problem"),
    [
        (("full",), {}, "names nothing that fails (add CONNECTION[/ENTITY])"),
        (("full", "west/orders"), {}, "west: is not a connection (expected one of east)"),
        (
            ("full", "east"),
            {"EAST__administration": "https://east.servicebus.windows.net"},
            "is not the administration",
        ),
        (("full", "east"), {"EAST__administration": "http://127.0.0.1:1"}, "the broker does not answer"),
        (("killed",), {STACK_SETTING: ""}, "names no running stack (start it with busway start"),
    ],
)
def test_what_is_no_local_stack_is_refused(
    run: Run, arguments: tuple[str, ...], settings: dict[str, str], problem: str
) -> None:
    refused = run(*arguments, **settings)
    assert (refused.exit_code, problem in refused.stderr) == (1, True), refused.output


def test_a_killed_function_app_starts_again(run: Run, tmp_path: Path) -> None:
    async def kill() -> None:
        program = "import os, sys, time; print('ready', os.getpid(), flush=True); time.sleep(60)"
        child = await Child.start(
            "host", [sys.executable, "-c", program], tmp_path / "host.log", tmp_path, {}, pid_file=tmp_path / PID_FILE
        )
        try:
            await child.matches("^ready", 1, 20)
            killed = await asyncio.to_thread(run, "killed", **{STACK_SETTING: str(tmp_path)})
            assert killed.exit_code == 0, killed.output
            first, second = await child.matches(r"^ready (\d+)", 2, 20)
            assert first[1] != second[1] == (tmp_path / PID_FILE).read_text().strip()
            assert killed.stdout.startswith(f"killed the function app, process {first[1]};")
        finally:
            await child.stop()

    asyncio.run(kill())
