"""The steps of `busway pause` and `busway resume`, with the administration of the local broker and virtual time."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from cli.main import app
from cli.pause.entity import Entity
from cli.pause.steering import Steering
from shared.clock import ManualClock
from shared.errors import TargetRefused
from shared.status.report import GONE_SECONDS, VERSION, Control, InstanceReport, TaskReport
from shared.status.store import StatusStore
from shared.tasks.models import Connection
from shared.tasks.source import Source
from tests.unit.status.test_publisher import ContainerInMemory

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

START = datetime(2026, 11, 23, 10, 0, tzinfo=UTC)
OPS = ("ops", "east is moved")
WEST = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders"),),
    topics=(TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="replication"),)),),
)


class Interrupted(Exception):
    """The command is killed."""


class Site:
    """One task, its orders, and its source at the local broker."""

    def __init__(self, source: Source) -> None:
        self.clock = ManualClock(START)
        self.container = ContainerInMemory(self.clock)
        self.store = StatusStore(self.container)
        self.entity = Entity(source, Connection(kind="service-bus", setting="WEST"))
        self.said: list[str] = []
        self.at: dict[float, Callable[[], None]] = {}

    def steering(self, *, is_hub: bool = False) -> Steering:
        entity = None if is_hub else self.entity
        return Steering("copy", self.store, entity, self.said.append, clock=self.clock, sleep=self._sleep)

    def pause(self, who: tuple[str, str | None] = OPS, seconds: float = 30, *, is_hub: bool = False) -> int:
        return asyncio.run(self.steering(is_hub=is_hub).pause(*who, seconds))

    def resume(self) -> None:
        asyncio.run(self.steering().resume())

    def control(self) -> Control | None:
        return asyncio.run(self.store.control("copy"))

    def report(self, in_hand: int) -> None:
        report = InstanceReport(VERSION, "one", 0, 0, [TaskReport("copy", in_hand=in_hand)])
        # The store's own method cannot be called while the loop of the command runs.
        self.container.blobs["instances/one.json"] = msgspec.json.encode(report), self.clock.now()

    async def _sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        for when in [each for each in self.at if each <= self.clock.monotonic()]:
            self.at.pop(when)()


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RunningBroker, RunningAdmin]]:
    with RunningBroker([WEST]) as broker, RunningAdmin(broker) as admin:
        yield broker, admin


QUEUE = Source(connection="west", queue="orders")
SUBSCRIPTION = Source(connection="west", topic="events", subscription="replication")


@pytest.fixture
def site(
    running: tuple[RunningBroker, RunningAdmin], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Site:
    broker, admin = running
    broker.reset()
    monkeypatch.setenv("WEST", broker.connection_string("west"))
    monkeypatch.setenv("WEST__administration", admin.address("west"))
    return Site(getattr(request, "param", QUEUE))


@pytest.mark.parametrize("site", [QUEUE, SUBSCRIPTION], ids=["queue", "subscription"], indirect=True)
def test_resume_undoes_what_pause_did(site: Site) -> None:
    assert site.pause() == 0
    control = site.control()
    assert control == Control(
        paused=True,
        since="2026-11-23T10:00:00Z",
        by="ops",
        reason="east is moved",
        closed=True,
        entity=site.entity.name,
        before="Active",
    )
    assert site.entity.status() == "ReceiveDisabled"
    site.resume()
    assert (site.entity.status(), site.control()) == ("Active", None)


@pytest.mark.parametrize(("before", "paused"), [("SendDisabled", "Disabled"), ("ReceiveDisabled", "ReceiveDisabled")])
def test_a_source_that_was_not_active_gets_back_what_it_had(site: Site, before: str, paused: str) -> None:
    site.entity.change("Active", before)
    site.pause()
    assert site.entity.status() == paused
    site.resume()
    assert site.entity.status() == before


def test_a_status_that_someone_sets_during_the_pause_stays(site: Site) -> None:
    site.pause()
    site.entity.change("ReceiveDisabled", "Disabled")
    site.resume()
    assert (site.entity.status(), site.control()) == ("Disabled", None)
    assert f"{site.entity.name} is Disabled, which someone else has set; it stays so" in site.said


def test_the_source_is_closed_only_when_no_batch_is_in_hand(site: Site) -> None:
    site.report(7)
    found: list[str] = []

    def look(in_hand: int) -> None:
        site.report(in_hand)
        found.append(site.entity.status())

    site.at = {15: partial(look, 7), 20: partial(look, 0)}
    assert site.pause() == 0
    assert found == ["Active", "Active"]
    assert 20 <= site.clock.monotonic() < 25
    assert site.entity.status() == "ReceiveDisabled"


def test_what_is_in_hand_at_the_time_limit_is_reported_and_the_source_closed(site: Site) -> None:
    site.report(7)
    assert site.pause(seconds=20) == 7
    assert site.entity.status() == "ReceiveDisabled"
    assert site.said[-1] == "7 messages are still in hand: they are delivered again after the resume"


def test_an_instance_that_was_killed_with_a_batch_is_waited_for_until_it_counts_as_gone(site: Site) -> None:
    site.report(7)
    assert site.pause(seconds=600) == 0
    assert GONE_SECONDS <= site.clock.monotonic() < GONE_SECONDS + 5


def test_an_interrupted_pause_is_continued_or_undone(site: Site) -> None:
    def kill() -> None:
        raise Interrupted

    for is_continued in (True, False):
        site.at = {site.clock.monotonic() + 5: kill}
        with pytest.raises(Interrupted):
            site.pause()
        control = site.control()
        assert control is not None
        assert (control.before, control.closed, site.entity.status()) == ("Active", False, "Active")
        if is_continued:
            site.pause(("someone else", None))
            again = site.control()
            assert again is not None
            assert (again.by, again.since, again.closed) == ("ops", control.since, True)
        site.resume()
        assert (site.entity.status(), site.control()) == ("Active", None)


def test_a_pause_that_someone_else_resumes_or_repeats_meanwhile_closes_no_source_in_their_place(site: Site) -> None:
    other = Control(paused=True, by="other", since="2026-11-23T10:00:05Z")
    for blobs, before in (({}, None), ({"control/copy.json": (msgspec.json.encode(other), START)}, other)):
        site.at = {site.clock.monotonic() + 5: lambda blobs=blobs: setattr(site.container, "blobs", dict(blobs))}  # type: ignore[misc] # a default of a lambda
        with pytest.raises(TargetRefused, match="someone else has resumed it meanwhile"):
            site.pause()
        assert (site.entity.status(), site.control()) == ("Active", before)


def test_an_interrupted_resume_is_continued_or_paused_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(*_: object) -> str:
        raise Interrupted

    for is_continued in (True, False):
        site.pause()
        with monkeypatch.context() as patch:
            patch.setattr(site.entity, "change", kill)
            with pytest.raises(Interrupted):
                site.resume()
        control = site.control()
        assert control is not None
        assert (control.paused, site.entity.status()) == (False, "ReceiveDisabled")
        if not is_continued:
            site.pause()
        site.resume()
        assert (site.entity.status(), site.control()) == ("Active", None)


def test_a_hub_is_paused_by_the_order_alone(site: Site) -> None:
    assert site.pause(is_hub=True) == 0
    control = site.control()
    assert control is not None
    assert (control.paused, control.closed, control.before) == (True, False, None)
    assert site.entity.status() == "Active"


def test_a_damaged_order_is_not_overwritten(site: Site) -> None:
    asyncio.run(site.container.replace("control/copy.json", b"{"))
    with pytest.raises(TargetRefused, match=r"control/copy\.json: is not an order of `busway pause`; delete it"):
        site.pause()


TASK = """
task: {name}
source: {source}
routes: [{{target: {{connection: east, queue: {name}}}}}]
rejects: {{connection: west, queue: rejected}}
"""


def run(folder: Path, *arguments: str, has_storage: bool = True) -> Result:
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: WEST}\neast: {kind: service-bus, setting: EAST}\n"
    )
    (folder / "journal.yaml").write_text("blob: {setting: AzureWebJobsStorage, container: journal}\n")
    sources = {
        "orders": "{connection: west, queue: orders}\nlanes: 2",
        "both": "{connection: west, queue: Orders}",
        "dead": "{connection: west, queue: other, dead_letter: true}",
        "alone": "{connection: west, queue: alone}",
    }
    for name, source in sources.items():
        (folder / "tasks" / f"{name}.yaml").write_text(TASK.format(name=name, source=source))
    storage = "UseDevelopmentStorage=true" if has_storage else None
    return CliRunner(env={"AzureWebJobsStorage": storage}).invoke(app, [*arguments, "--config", str(folder)])


@pytest.mark.parametrize(
    ("task", "has_storage", "problem"),
    [
        ("orders", True, "orders: shares its source with both, which would be paused too (use --az"),
        ("dead", True, "dead: takes from a dead-letter queue, which has no status of its own"),
        ("alone", False, "control: orders have no place: AzureWebJobsStorage"),
        ("nobody", True, "nobody: unknown task (expected one of"),
    ],
)
def test_what_cannot_be_paused_is_refused_with_the_way_that_is_left(
    tmp_path: Path, task: str, has_storage: bool, problem: str
) -> None:
    result = run(tmp_path, "pause", task, "--close-source", has_storage=has_storage)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_the_command_of_the_platform_switches_the_task_off_by_a_setting_that_linux_takes(tmp_path: Path) -> None:
    place = '--resource-group "$GROUP" --name "$APP"'
    assert run(tmp_path, "pause", "orders", "--az").stdout == (
        f"az functionapp config appsettings set {place} --settings BUSWAY_OFF_orders=true\n"
    )


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(site: Site) -> None:
    site.report(3)
    asyncio.run(site.steering().show_pause())
    name = site.entity.name
    assert site.said == [
        "would start no new batch; instances that report it: 1, 3 messages are in hand",
        f"{name} is Active, it would be ReceiveDisabled",
    ]
    assert (site.entity.status(), site.control()) == ("Active", None)
    site.report(0)
    site.pause()
    site.said.clear()
    asyncio.run(site.steering().show_resume())
    asyncio.run(site.steering().show_pause())
    assert site.said == [
        "would be resumed; it is paused since 2026-11-23T10:00:00Z, by ops",
        f"{name} is ReceiveDisabled, it would be Active",
        "is paused since 2026-11-23T10:00:00Z, by ops",
        "would start no new batch; instances that report it: 1, 0 messages are in hand",
        f"{name} is ReceiveDisabled and stays so",
    ]
    assert site.entity.status() == "ReceiveDisabled"
