"""The watch for losses raises no false alarm in any fault, and finds a loss on the same line."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage

from busway_broker.faults import Operation
from tests.faults.cuts import CUTS
from tests.faults.kills import KILLS, held
from tests.faults.parties import drafts, name_of
from tests.faults.routes import QUEUES
from tests.faults.scenario import Row, Scenario
from tests.faults.stops import STOPS
from tests.faults.watched import WatchedLine, short_grace

# The watch runs in this process. A connection that is cut while the SDK closes it leaves its socket to the collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SCENARIOS = [*KILLS, *CUTS, *STOPS]


@pytest.fixture(autouse=True)
def grace() -> Iterator[None]:
    with short_grace():
        yield


def watched(scenario: Scenario) -> WatchedLine:
    """Run a scenario on a watched line."""
    with tempfile.TemporaryDirectory() as folder:
        line = WatchedLine(
            scenario.route,
            Path(folder) / "line",
            lock=scenario.lock,
        )
        with line:
            scenario.action(line)
            line.wait_for_looks()
            assert not [
                objection for objection in Row(scenario, line.balance()).objections() if objection.startswith("lost")
            ]
        return line


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_no_fault_raises_a_false_alarm(scenario: Scenario) -> None:
    assert watched(scenario).found == []


def test_after_a_kill_only_what_another_consumer_took_is_reported(tmp_path: Path) -> None:
    with WatchedLine(QUEUES, tmp_path / "line") as line:
        first = line.host()
        fault = held(Operation.SEND)
        line.target.add(fault)
        line.send(drafts(QUEUES))
        line.wait_until_struck(line.target)
        first.kill()
        line.target.clear()
        line.end_locks()
        line.send(drafts(QUEUES, "second-"))
        taken = take_one(line)
        line.end_locks()
        line.host()
        line.wait_until_drained()
        line.wait_for_looks()
    assert [(each.loss.first, each.loss.last) for each in line.found] == [(taken, taken)]


def take_one(line: WatchedLine) -> int:
    """Complete the last message but one as another consumer; return its number."""
    with (
        ServiceBusClient.from_connection_string(line.broker.connection_string("west")) as client,
        client.get_queue_receiver(QUEUES.source_path) as receiver,
    ):
        found: list[ServiceBusReceivedMessage] = []
        while len(found) < len(line.accepted):
            found += receiver.receive_messages(len(line.accepted) - len(found), 5)
        chosen = sorted(found, key=lambda each: each.sequence_number or 0)[-2]
        receiver.complete_message(chosen)
    # The oracle must not miss it.
    line.accepted = [copy for copy in line.accepted if copy.name != name_of(bytes(str(chosen), "utf-8"))]
    return chosen.sequence_number or 0
