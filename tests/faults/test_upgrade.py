"""
An upgrade under traffic: the app of the release before, then this one, on the same entities, journal and checkpoints.

`tests/golden/busway-0.2.0.tar.xz` has the app and the local host of that release, as they are in its commit. So the
older journal, checkpoints and unsettled messages are those that the older code leaves behind.
"""

import json
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from busway_broker.faults import Effect, Fault, Operation
from cli.main import app
from cli.spark import check_spark
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.faults.kills import SENT_BUT_UNSETTLED, held, kill_at
from tests.faults.line import Line
from tests.faults.night import reconciled
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_SESSIONS, HUBS, QUEUES, SESSIONS, Kind, Route
from tests.faults.scenario import Row, Scenario
from tests.faults.watched import WatchedLine, short_grace

OLDER = "busway-0.2.0"
ARCHIVE = Path(__file__).parents[1] / "golden" / f"{OLDER}.tar.xz"
# Keys of a task and a kind of connection that the older release does not know: a project gets them after its upgrade.
_NEW_KEYS = re.compile(r"^(?:lanes|dispatch|\w+: \{kind: amqp).*\n", re.MULTILINE)
_OLDER_PROGRAM = """
import asyncio, logging, sys
from pathlib import Path
from local.host.host import run
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
logging.getLogger("azure").setLevel(logging.WARNING)
tell = lambda host: print("ready", 0, *[function.name for function in host.functions], flush=True)
asyncio.run(run(Path(sys.argv[1]), http_port=0, on_ready=tell))
"""

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]


class OlderHost(HostProcess):
    """The local host of the older release with its app."""

    program = _OLDER_PROGRAM


class UpgradedLine(WatchedLine):
    """A route on which the hosts in *older*, by their number, are of the older release."""

    def __init__(self, *arguments: Any, older: frozenset[int], code: Path, **options: Any) -> None:
        """Prepare as `Line`, with a task that both releases can read; *code* is the folder of the older release."""
        super().__init__(*arguments, **options)
        self._older = older
        self._code = code
        for file in (self._folder / "tasks/carry.yaml", self._folder / "connections.yaml"):
            file.write_text(_NEW_KEYS.sub("", file.read_text()))

    @property
    def storage(self) -> str:
        """Return the connection string of the journal."""
        return self._storage

    def trace(self, message_id: str) -> str:
        """Return what `busway trace` prints."""
        result = CliRunner(env=self._settings()).invoke(app, ["trace", message_id, "--config", str(self._folder)])
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    def checkpoints(self) -> dict[str, str]:
        """Return what the hosts have written."""
        return dict(json.loads(self._checkpoints.read_text()))

    def _make_host(self, folder: Path, settings: Mapping[str, str], arguments: Sequence[str]) -> HostProcess:
        if len(self.hosts) not in self._older:
            return super()._make_host(folder, settings, arguments)
        host = OlderHost(str(self._code), folder, self._settings() | dict(settings))
        host.root = self._code
        return host


def swap(line: Line) -> None:
    """Stop hosts that have carried and settled messages, each while it carries more, and start the next one."""
    slow = Fault(effect=Effect.DELAY, operations=frozenset({Operation.SEND}), delay=0.1)
    for number in range(3):
        line.send(drafts(line.route, f"{number}-"))
        host = line.host()
        line.wait_until_drained()
        line.target.add(slow)
        before = len(line.names_at_target())
        line.send(drafts(line.route, f"{number}-late-"))
        line.wait_until(lambda before=before: len(line.names_at_target()) > before, "at work")  # type: ignore[misc]  # bound
        if number < 2:
            assert host.stop(40) == 0, "the host did not stop"
            # The older local host writes no checkpoint once it is asked to stop.
            line.expect_repeats(line.sent_but_unsettled())
            line.end_locks()
        line.target.clear()
    line.wait_until_drained()


def overlap(line: Line) -> None:
    """Run both at a time, as when instances are replaced one by one."""
    first = line.host()
    line.send(drafts(line.route))
    line.host()
    line.send(drafts(line.route, "both-"))
    line.wait_until_drained()
    assert first.stop(40) == 0, "the host did not stop"
    line.send(drafts(line.route, "after-"))
    line.wait_until_drained()


_kill = partial(kill_at, site="east", fault=held(Operation.SEND))
FIRST, SECOND, BOTH_ENDS = frozenset({0}), frozenset({1}), frozenset({0, 2})


def upgrade(name: str, route: Route, action: Callable[[Line], None], older: frozenset[int]) -> Any:
    """Return a parameter: a scenario, and which of its hosts are older."""
    repeats = True if action is _kill else None if route.source is Kind.HUB else False
    scenario = Scenario(name, route, action, explains=SENT_BUT_UNSETTLED, repeats=repeats)
    return pytest.param(scenario, older, id=str(scenario))


UPGRADES = [
    *(upgrade("upgraded and taken back", route, swap, BOTH_ENDS) for route in (QUEUES, SESSIONS, HUBS)),
    *(upgrade("both at a time", route, overlap, FIRST) for route in (QUEUES, SESSIONS)),
    *(upgrade("killed and upgraded", route, _kill, FIRST) for route in (SESSIONS, HUB_TO_SESSIONS)),
    upgrade("killed and taken back", HUB_TO_SESSIONS, _kill, SECOND),
]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("older")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / OLDER


@pytest.fixture(autouse=True)
def grace() -> Iterator[None]:
    with short_grace():
        yield


@pytest.mark.parametrize(("scenario", "older"), UPGRADES)
def test_no_message_is_lost_and_none_is_carried_twice_without_a_reason(
    scenario: Scenario, older: frozenset[int], code: Path, tmp_path: Path
) -> None:
    with UpgradedLine(scenario.route, tmp_path / "line", older=older, code=code) as line:
        scenario.action(line)
        line.wait_for_looks()
        assert Row(scenario, line.balance()).objections() == []
        assert line.found == []
        if scenario.route.source is Kind.HUB:
            # Both releases use the same ones, of both partitions at most.
            assert 1 <= len(line.checkpoints()) <= 2


def test_the_reconciliation_reads_a_journal_of_both(code: Path, tmp_path: Path) -> None:
    check_spark()
    begun = datetime.now(UTC)
    with UpgradedLine(SESSIONS, tmp_path / "line", older=FIRST, code=code) as line:
        kill_at(line, "east", held(Operation.SEND))
        assert line.hosts[-1].stop(40) == 0
        code_of_job, summary = reconciled(line.storage, tmp_path / "out", begun)
        accepted = len(line.accepted)
        traced = line.trace("k0-0")
    (task,) = summary["tasks"]
    assert sum(task["verdicts"].values()) == accepted, summary
    assert (code_of_job, summary["verdict"]) == (0, "clean"), summary["sentence"]
    # The older release has received it and was killed; this one has sent it.
    assert "k0-0: 1 hop." in traced
    assert "east/orders accepted it" in traced
    assert traced.count("received it") == 2


@pytest.mark.always
def test_the_archive_is_the_release_before_this_one() -> None:
    changes = re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert f"busway-{changes[0]}" == OLDER, "a new release: replace the archive by that of the release before"
