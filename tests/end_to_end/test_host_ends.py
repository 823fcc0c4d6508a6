"""
How the local host stops, times out and loses its worker: as the real host was measured to do (H1 to H6), and as users
and engineers saw it on the platform (FN01, FN04 to FN06, FN31).
"""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from tests.end_to_end.host_process import HostProcess
from tests.wire.host_frames import left
from tests.wire.settling import Refused, SettlementClient, send

pytestmark = pytest.mark.long

GRACE_SECONDS = 4


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    lock = timedelta(minutes=5)
    queues = tuple(QueueConfig(name=name, lock_duration=lock) for name in ("first", "second"))
    with RunningBroker([NamespaceConfig(name="ns", queues=queues)]) as running:
        yield running


def started(broker: RunningBroker, folder: Path, *arguments: str, timeout: str = "00:05:00") -> HostProcess:
    settings = {"SB": broker.connection_string("ns"), "AzureFunctionsJobHost__functionTimeout": timeout}
    return HostProcess("ending", folder, settings, *arguments)


@pytest.fixture
def host(broker: RunningBroker, tmp_path: Path) -> Iterator[HostProcess]:
    with started(broker, tmp_path, f"--grace-seconds={GRACE_SECONDS}", timeout="00:00:08") as process:
        process.wait_until_ready()
        yield process


def pids(host: HostProcess, function: str) -> list[int]:
    return [message["pid"] for message in host.messages(function)]


@pytest.mark.parametrize(
    ("arguments", "seconds", "gets_sigterm"),
    [
        ((f"--grace-seconds={GRACE_SECONDS}",), GRACE_SECONDS, True),
        (("--ending=drain", f"--drain-seconds={GRACE_SECONDS}"), GRACE_SECONDS, True),
        (("--ending=restart",), 0, False),
    ],
)
def test_what_outlives_the_end_is_killed_and_not_settled(
    broker: RunningBroker, tmp_path: Path, arguments: tuple[str, ...], seconds: int, *, gets_sigterm: bool
) -> None:
    """FN01, FN06; the app has a short time after SIGTERM (FN31), which a publish does not give."""
    with started(broker, tmp_path, *arguments) as host:
        host.wait_until_ready()
        send(broker, "first", "rest 120")  # far longer than the end takes
        host.wait_for(lambda: host.bodies("first"))
        begun = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - begun >= seconds
        assert host.bodies("first done") == []  # nothing waited for it
        assert host.bodies("goodbye") == (["15"] if gets_sigterm else [])
    assert left(broker, "first") == [(0, True)]  # it comes again when its lock ends


def test_app_gives_back_through_the_host_what_it_holds_at_sigterm(broker: RunningBroker, tmp_path: Path) -> None:
    with started(broker, tmp_path, "--grace-seconds=0") as host:
        host.wait_until_ready()
        send(broker, "first", "hold 120")
        host.wait_for(lambda: host.bodies("first"))
        assert host.stop() == 0
        assert host.bodies("first done") == []
    assert left(broker, "first") == [(1, False)]


def test_drain_stops_the_listeners_and_lets_invocations_end(broker: RunningBroker, tmp_path: Path) -> None:
    """FN06: azure-webjobs-sdk 2795."""
    with started(broker, tmp_path, "--ending=drain") as host:
        host.wait_until_ready()
        send(broker, "first", "rest 3")
        host.wait_for(lambda: host.bodies("first"))
        host.terminate()
        host.wait_for(lambda: "draining" in host.log())
        time.sleep(1)  # the listeners receive for another half of one
        send(broker, "second", "well")
        assert host.stop() == 0
        assert host.bodies("first done") == ["rest 3"]
        assert host.bodies("second") == []
    assert (left(broker, "first"), left(broker, "second")) == ([], [(0, False)])


def test_invocation_that_starts_beside_a_drain_is_aborted(broker: RunningBroker, tmp_path: Path) -> None:
    """FN04: azure-functions-host 12007."""
    with started(broker, tmp_path, "--ending=drain") as host:
        host.wait_until_ready()
        send(broker, "first", "signal", "rest 120")  # one at a time: the second starts right after the signal
        begun = time.monotonic()
        host.wait_for(lambda: "Worker channel is shutting down. Aborting function." in host.log())
        assert host.stop() == 0
        assert time.monotonic() - begun < 60
        assert host.bodies("first done") == ["signal"]
    assert left(broker, "first") == [(1, False)]


def test_restart_in_a_drain_listens_again_until_the_end(broker: RunningBroker, tmp_path: Path) -> None:
    """FN05: azure-functions-host 11692."""
    with started(broker, tmp_path, "--ending=drain", "--restart-in-drain=1", "--drain-seconds=4") as host:
        host.wait_until_ready()
        host.terminate()
        host.wait_for(lambda: "listening again" in host.log())
        send(broker, "first", "well", "rest 120")
        host.wait_for(lambda: len(host.bodies("first")) == 2)
        assert host.stop() == 0
        assert host.bodies("first done") == ["well"]
    assert left(broker, "first") == [(0, True)]


def test_listeners_go_on_receiving_during_the_grace(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", *["rest 0.5"] * 40)
    host.wait_for(lambda: host.bodies("first"))
    assert host.stop() == 0
    # One at a time: without new ones during the grace it would be one or two.
    assert 4 <= len(host.bodies("first done")) <= 12
    # The last one may still end after SIGTERM, when the host takes no answer any more.
    assert len(left(broker, "first")) + len(host.bodies("first done")) in (40, 41)


def test_grace_ends_early_once_nothing_runs(broker: RunningBroker, tmp_path: Path) -> None:
    # Far longer than the host takes to end on a machine that does much else.
    with started(broker, tmp_path, "--grace-seconds=60") as host:
        send(broker, "first", "rest 0.5")
        host.wait_for(lambda: host.bodies("first"))
        begun = time.monotonic()
        assert host.stop() == 0
        assert time.monotonic() - begun < 40
        assert host.bodies("first done") == ["rest 0.5"]
        assert left(broker, "first") == []


def test_timeout_kills_the_worker_and_everything_in_it(host: HostProcess, broker: RunningBroker) -> None:
    send(broker, "first", "rest 60")
    host.wait_for(lambda: host.bodies("first"))
    time.sleep(2)  # the second would end in time, but after the timeout of the first
    send(broker, "second", "rest 7")
    host.wait_for(lambda: host.bodies("second"))
    host.wait_for(lambda: "ran for more than 0:00:08; the worker is killed" in host.log())
    killed = time.monotonic()
    time.sleep(1)
    assert left(broker, "first") == left(broker, "second") == [(0, True)]  # the listeners have not heard yet
    host.wait_for(lambda: len(host.bodies("first")) >= 2 and len(host.bodies("second")) >= 2, 40)
    assert time.monotonic() - killed >= 9.5
    for name in ("first", "second"):
        assert f"{name}: invocation failed: Timeout value of 00:00:08 was exceeded by function: first." in host.log()
    assert host.bodies("second done") == []  # it ran for less than the timeout, in the same worker
    assert host.bodies("goodbye") == []
    assert len(set(pids(host, "first")[:2])) == 2


def test_good_message_is_completed_bad_one_retried_as_host_json_says_and_worker_that_dies_replaced(
    host: HostProcess, broker: RunningBroker
) -> None:
    """The function gets the address of the host's settlement service, which it does not need for that."""

    async def ask(port: int) -> None:
        client = SettlementClient(port)
        with pytest.raises(Refused, match=r"LockToken x not found\."):
            await client.call("Complete", locktoken="x")
        await client.close()

    send(broker, "first", "well")
    host.wait_for(lambda: host.bodies("first done") == ["well"] and left(broker, "first") == [])
    words = host.messages("first")[0]["arguments"]
    found = dict(zip(words[::2], words[1::2], strict=True))
    asyncio.run(ask(int(found["--port"])))
    assert found["--host"] == "127.0.0.1"
    assert found["--functions-uri"] == f"http://127.0.0.1:{found['--port']}/"
    assert found["--grpcMaxMessageLength"] == found["--functions-grpc-max-message-length"] == "2147483647"
    assert (found["--workerId"], found["--requestId"]) == (
        found["--functions-worker-id"],
        found["--functions-request-id"],
    )
    send(broker, "first", "break")
    host.wait_for(lambda: host.bodies("first").count("break") >= 4)
    messages = host.messages("first")[1:5]
    # Each delivery is tried twice before it is abandoned; autoCompleteMessages of host.json has no effect.
    assert [message["delivery_count"] for message in messages] == [1, 1, 2, 2]
    ids = [message["invocation"] for message in messages]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    host.wait_for(lambda: left(broker, "first") == [])
    send(broker, "second", "rest 3")
    host.wait_for(lambda: host.bodies("second"))
    send(broker, "first", "die")
    host.wait_for(lambda: "first: invocation failed: the worker process ended unexpectedly" in host.log())
    host.wait_for(lambda: "second: invocation failed: the worker process ended unexpectedly" in host.log())
    host.wait_for(lambda: host.bodies("second done"))
    assert len(set(pids(host, "second"))) >= 2
    assert host.stop() == 0
