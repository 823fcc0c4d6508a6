"""A failover of an alias: the host before, during and after it (docs/failover.md)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config_file import load_config
from busway_broker.thread import RunningBroker
from tests.end_to_end.busway_process import ROOT
from tests.end_to_end.host_process import HostProcess
from tests.end_to_end.shell import Shell, assert_shown

pytestmark = pytest.mark.long

FILES = {
    "pair.json": """
{
  "UserConfig": {
    "Namespaces": [
      {"Name": "west", "Queues": [{"Name": "orders"}], "Pairing": {"Alias": "site", "Secondary": "east", "Port": 5690}},
      {"Name": "east"},
      {"Name": "north", "Queues": [{"Name": "orders"}, {"Name": "orders-rejected"}]}
    ]
  }
}
""",
    "drill/connections.yaml": """
site: {kind: service-bus, setting: SITE}
north: {kind: service-bus, setting: NORTH}
""",
    "drill/tasks/carry.yaml": """
task: carry
source: {connection: site, queue: orders}
routes:
  - target: {connection: north, queue: orders}
rejects: {connection: north, queue: orders-rejected}
""",
}
STEPS = {
    "before": """
busway send site/orders one two --id before
busway receive north/orders --wait 30
""",
    "failover": r"""
curl -s -X POST -H "Content-Type: application/json" http://localhost:5301/\$busway/failover; echo
busway send site/orders three --id after
busway receive north/orders --wait 3
""",
    "after": """
busway receive north/orders --wait 30
""",
}
PRINTED = {
    "before": """
2 sent to site/orders
one  message_id=before-1 …repl-sequence=1
two  message_id=before-2 …repl-sequence=2
""",
    "failover": """
{"alias": "site"}
1 sent to site/orders
nothing in north/orders
""",
    "after": """
three  message_id=after …repl-sequence=1
""",
}
_ADMIN = "http://localhost:5301"


class Drill(NamedTuple):
    """The folder of the files, the broker, the settings of app and commands, and east's administration."""

    shell: Shell
    broker: RunningBroker
    settings: dict[str, str]
    admin: str

    def host(self, name: str) -> HostProcess:
        folder = self.shell.folder / name
        folder.mkdir()
        return HostProcess(str(ROOT), folder, self.settings)

    def step(self, name: str, before: str = "") -> None:
        """Run the commands of a step, and *before* them others, and compare what is printed."""
        result = self.shell.run(before + STEPS[name].replace(_ADMIN, self.admin), self.settings)
        assert_shown(result.stdout, PRINTED[name].lstrip())


@pytest.fixture
def drill(tmp_path: Path) -> Iterator[Drill]:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content.lstrip(), encoding="utf-8")
    # Free ports, also for the alias.
    pair = tmp_path / "pair.json"
    pair.write_text(re.sub(r', "Port": \d+', "", pair.read_text(encoding="utf-8")), encoding="utf-8")
    with RunningBroker(load_config([pair])) as broker, RunningAdmin(broker) as admin:
        settings = {
            "BUSWAY_CONFIG": str(tmp_path / "drill"),
            "BUSWAY_CHECKPOINTS": str(tmp_path / "checkpoints.json"),
            "SITE": broker.connection_string("site"),
            "NORTH": broker.connection_string("north"),
        }
        yield Drill(Shell(tmp_path), broker, settings, admin.address("east"))


def test_the_host_stays_at_the_old_primary_in_a_drill_and_reads_the_new_one_after_a_restart(drill: Drill) -> None:
    with drill.host("first") as host:
        host.wait_until_ready()
        drill.step("before")
        drill.step("failover")
    with drill.host("second") as host:
        host.wait_until_ready()
        drill.step("after")


def test_in_a_disaster_the_host_reconnects_to_the_new_primary_by_itself(drill: Drill) -> None:
    with drill.host("only") as host:
        host.wait_until_ready()
        drill.step("before")
        drill.broker.faults("west").go_down()
        assert drill.broker.faults("east").promote() == "site"
        drill.step("after", before="busway send site/orders three --id after >/dev/null\n")
