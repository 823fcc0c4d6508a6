"""A failover of an alias: the host before, during and after it (docs/failover.md)."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from busway_broker.config_file import load_config
from tests.end_to_end.shell import assert_shown
from tests.site import Site

pytestmark = pytest.mark.long

PAIR = {
    "Namespaces": [
        # Without a port, the alias gets a free one.
        {"Name": "west", "Queues": [{"Name": "orders"}], "Pairing": {"Alias": "site", "Secondary": "east"}},
        {"Name": "east"},
        {"Name": "north", "Queues": [{"Name": "orders"}, {"Name": "rejected"}]},
    ]
}
TASK = """
task: carry
source: {connection: site, queue: orders}
routes: [{target: {connection: north, queue: orders}}]
rejects: {connection: north, queue: rejected}
"""
ARRIVED = """\
one  message_id=before-1 …repl-sequence=1
two  message_id=before-2 …repl-sequence=2
"""
AFTERWARDS = "three  message_id=after …repl-sequence=1\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "pair.json").write_text(json.dumps({"UserConfig": PAIR}))
    alias = "site: {kind: service-bus, setting: SITE}"
    with Site(tmp_path, load_config([tmp_path / "pair.json"]), TASK, more=alias, has_admin=True) as site:
        site.settings |= {"SITE": site.broker.connection_string("site"), "BUSWAY_CHECKPOINTS": "checkpoints.json"}
        yield site


@contextlib.contextmanager
def carrying(site: Site) -> Iterator[None]:
    """Run a host in which the first two messages have arrived."""
    with site.running_host():
        assert site.run("send", "site/orders", "one", "two", "--id", "before").stdout == "2 sent to site/orders\n"
        assert_shown(site.run("receive", "north/orders", "--wait", "30").stdout, ARRIVED)
        yield


def test_the_host_stays_at_the_old_primary_in_a_drill_and_reads_the_new_one_after_a_restart(site: Site) -> None:
    with carrying(site):
        address = f"{site.settings['EAST__administration']}/$busway/failover"
        with urlopen(Request(address, b"", {"Content-Type": "application/json"})) as answer:  # noqa: S310 - the broker's own address
            assert json.load(answer) == {"alias": "site"}
        assert site.run("send", "site/orders", "three", "--id", "after").exit_code == 0
        assert site.run("receive", "north/orders", "--wait", "3").stdout == "nothing in north/orders\n"
    with site.running_host():
        assert_shown(site.run("receive", "north/orders", "--wait", "30").stdout, AFTERWARDS)


def test_in_a_disaster_the_host_reconnects_to_the_new_primary_by_itself(site: Site) -> None:
    with carrying(site):
        site.broker.faults("west").go_down()
        assert site.broker.faults("east").promote() == "site"
        assert site.run("send", "site/orders", "three", "--id", "after").exit_code == 0
        assert_shown(site.run("receive", "north/orders", "--wait", "30").stdout, AFTERWARDS)
