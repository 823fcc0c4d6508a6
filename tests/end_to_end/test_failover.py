"""`busway failover` on two sites of the local broker: what it prints, changes and refuses."""

import json
import os
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from cli.failover.configuration import open_failover
from shared.clock import SystemClock
from tests.clients.endpoints.zones import ZONE
from tests.end_to_end.running_pattern import EXAMPLES, namespaces_of
from tests.site import Site

# The SDK leaves sockets of connections that broke to the garbage collector.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

PATTERN = EXAMPLES / "active-passive"
ENTITY = "payments/Subscriptions/application"
LONG_AGO = timedelta(hours=1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, namespaces_of(PATTERN)) as site:
        shutil.copytree(PATTERN, tmp_path, dirs_exist_ok=True)
        yield site


def busway(site: Site, *arguments: str, **settings: str) -> Any:
    result = site.run("failover", *arguments, **settings)
    return result.exit_code, result.stdout, result.stderr


def active(site: Site) -> Any:
    return json.loads((site.folder / "endpoints.json").read_text())["active"]


def settled(site: Site, name: str = "endpoints.json") -> None:
    """Let the last change be longer ago than applications may go on with what they have read."""
    file = site.folder / name
    then = file.stat().st_mtime - LONG_AGO.total_seconds()
    os.utime(file, (then, then))


def local(identity: Any) -> ServiceBusMessage:
    return ServiceBusMessage("published there", message_id=identity)


def copy(identity: Any, path: str = "west") -> ServiceBusMessage:
    return ServiceBusMessage("a copy", message_id=identity, application_properties={"repl-path": path})


def test_failover_and_failback(site: Site) -> None:
    code, out, _ = busway(site, "switch", "east")
    assert code == 0
    assert "active.send: west -> east" in out
    assert active(site) == {"send": "west", "receive": "west"}

    # The previous site may be down: the switch does not contact it.
    site.broker.faults("west").go_down()
    code, out, _ = busway(site, "switch", "east", "--yes")
    assert code == 0
    assert "serial: 1 -> 2" in out
    assert active(site) == {"send": "east", "receive": "east"}
    code, out, _ = busway(site, "show")
    assert code == 0
    assert f"west does not answer: west/{ENTITY}: it cannot be peeked, " in out
    assert "Consumers  east (secondary)" in out
    code, _, err = busway(site, "failback", "--yes")
    assert code == 1
    assert f"west/{ENTITY}: it cannot be peeked" in err
    assert active(site) == {"send": "east", "receive": "east"}
    site.broker.faults("west").come_up()

    site.send("east/payments", copy("1"), local("2"), copy("3", "north;west"), copy("4", "north"))
    code, out, _ = busway(site, "failback", "--yes")
    assert code == 2
    assert "Consumers stay: publishers may send to east for" in out
    assert active(site) == {"send": "west", "receive": "east"}
    settled(site)
    code, out, _ = busway(site, "failback", "--yes")
    assert code == 2
    assert "Consumers stay: east holds 2 messages that were published there" in out
    code, out, _ = busway(site, "show", "--json")
    assert json.loads(out)["sites"]["east"][0]["local"] == 2
    # Consumers in the west never see a message that a consumer in the east could not process.
    with site.receiver(f"east/{ENTITY}") as receiver:
        for message in receiver.receive_messages(100, max_wait_time=5):
            if message.message_id == "2":
                receiver.dead_letter_message(message)
            else:
                receiver.complete_message(message)
    code, out, _ = busway(site, "failback", "--json", "--yes")
    plain = json.loads(out)
    assert (code, plain["waits_for"], plain["left_behind"]) == (0, None, [])
    (dead,) = plain["dead_lettered"]
    assert (dead["site"], dead["entity"], dead["local"]) == ("east", f"{ENTITY}/$DeadLetterQueue", 1)
    _, out, _ = busway(site, "show")
    assert f"{ENTITY}/$DeadLetterQueue" in out
    assert active(site) == {"send": "west", "receive": "west"}


def test_without_yes_the_changes_are_shown_and_none_is_made(site: Site) -> None:
    code, out, _ = busway(site, "switch", "east")
    assert (code, "would change" in out, "active.send: west -> east" in out) == (0, True, True)
    assert active(site) == {"send": "west", "receive": "west"}
    busway(site, "switch", "east", "--yes")
    site.send("east/payments", local("1"))
    code, out, _ = busway(site, "failback")
    assert (code, "active.send: east -> west" in out, "active.receive" in out) == (2, True, False)
    assert "Then it would wait: publishers may send to east for" in out
    code, out, _ = busway(site, "failback", "--force", "--json")
    plain = json.loads(out)
    assert (code, len(plain["left_behind"]), plain["active"]) == (0, 1, {"send": "east", "receive": "east"})
    assert any(line.startswith("active.receive: east -> west") for line in plain["changes"])
    assert active(site) == {"send": "east", "receive": "east"}


def test_force_reports_the_messages_that_it_leaves_behind(site: Site) -> None:
    busway(site, "switch", "east", "--yes")
    site.send("east/payments", copy("1"), local("2"), local("3"))
    code, out, _ = busway(site, "failback", "--force", "--yes")
    assert code == 0
    assert f"Left behind in east/{ENTITY}: 2 messages, enqueued 20" in out
    assert active(site) == {"send": "west", "receive": "west"}


def test_every_message_is_counted_also_locked_and_deferred_ones_of_several_requests(site: Site) -> None:
    busway(site, "switch", "east", "--yes")
    site.send("east/payments", *(local(str(number)) for number in range(300)))
    with site.receiver(f"east/{ENTITY}") as receiver:
        for message in receiver.receive_messages(2, max_wait_time=5)[:1]:
            receiver.defer_message(message)
        _, out, _ = busway(site, "show", "--json")
    counts = json.loads(out)["sites"]["east"][0]
    assert (counts["entity"], counts["messages"], counts["local"]) == (ENTITY, 300, 300)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["switch", "north"], "north: unknown site (failover.yaml has west, east)"),
        (["switch", "east", "--role", "sender"], "'sender': unknown role, expected send or receive"),
    ],
)
def test_unknown_names_are_reported(arguments: Any, expected: str, site: Site) -> None:
    code, _, err = busway(site, *arguments)
    assert code != 0
    assert expected in " ".join(err.replace("│", "").split())


def test_a_switch_back_to_the_primary_refers_to_failback(site: Site) -> None:
    # A mistake in a task must not prevent a switch.
    (site.folder / "tasks/mistaken.yaml").write_text("task: x\nsorce: 1\n")
    code, _, _ = busway(site, "switch", "east", "--yes")
    assert code == 0
    for options in ((), ("--yes",)):
        code, _, err = busway(site, "switch", "west", *options)
        assert code == 1
        assert "run `busway failover failback`, which leaves no messages behind" in err
    code, _, _ = busway(site, "switch", "west", "--role", "send", "--yes")
    assert code == 0
    assert active(site) == {"send": "west", "receive": "east"}
    code, _, _ = busway(site, "switch", "west", "--force", "--yes")
    assert code == 0


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("primary: west", "primary: north", "the primary 'north' is not one of the sites"),
        ("connection: east", "connection: north", "no connection to Service Bus is called 'north'"),
        ("endpoints: {file: endpoints.json}", "", "names no place, expected one of zone, azure_dns, endpoints"),
        ("endpoints: {file", "zone: {file: a, origin: b}\nendpoints: {file", "names zone and endpoints"),
        ("endpoints: {file: endpoints.json}", "zone: {file: a, origin: b.c}", "a zone needs aliases"),
        (
            "endpoints: {file: endpoints.json}",
            "endpoints: {file: e, key_id: a}",
            "has only one of key_setting and key_id",
        ),
        ("primary:", "primry:", "did you mean 'primary'?"),
        ("entities: [payments/Subscriptions/application]", "entities: []", "expected at least one item"),
        ("{file: endpoints.json}", "{file: endpoints.json, key_setting: NO_KEY, key_id: a}", "NO_KEY: the app setting"),
        (
            "{file: endpoints.json}",
            "{file: endpoints.json, key_setting: PATH, key_id: a}",
            "PATH: the app setting has",
        ),
        ("{file: endpoints.json}", "{file: gone.json}", "gone.json: cannot be read"),
    ],
)
def test_an_invalid_failover_file_is_reported(before: str, after: str, expected: str, site: Site) -> None:
    file = site.folder / "failover.yaml"
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))
    code, _, err = busway(site, "show")
    assert code == 1
    assert expected in err


def test_a_missing_entity_and_a_missing_connection_string_are_reported(site: Site) -> None:
    file = site.folder / "failover.yaml"
    file.write_text(file.read_text().replace(ENTITY, "paymnts"))
    expected = (
        "east/paymnts: it cannot be peeked, MessagingEntityNotFoundError; "
        "east answers: check that the entity exists, and the right to listen"
    )
    assert json.loads(busway(site, "show", "--json")[1])["sites"]["east"] == {"error": expected}
    del site.settings["EAST"]
    code, out, err = busway(site, "show")
    assert code == 1
    assert "Consumers  west (primary)" in out
    assert "EAST: the app setting is missing" in err


def with_register(site: Site, register: str) -> None:
    file = site.folder / "failover.yaml"
    text = file.read_text()
    for name in ("west", "east"):
        text = text.replace(f"connection: {name}}}", f"connection: {name}, name: {name}.example.test}}")
    aliases = "aliases: {send: bus-send.example.test, receive: bus-receive.example.test}\n"
    file.write_text(text.replace("endpoints: {file: endpoints.json}", aliases + register))


def test_a_zone_is_switched_by_the_same_commands(site: Site) -> None:
    with_register(site, "zone: {file: example.test.zone, origin: example.test}")
    zone = site.folder / "example.test.zone"
    zone.write_text(ZONE)
    code, out, _ = busway(site, "switch", "east", "--yes")
    assert code == 0
    assert "bus-send.example.test. CNAME west.example.test. -> east.example.test." in out
    assert "SOA serial 2026112101 -> 2026112102" in out
    assert "Now let the name server load the zone (rndc reload example.test)." in out
    # When a name server has loaded it the file does not say: however old it is, the time to live begins with the run.
    for seconds, expected in (
        ("20", "Consumers stay: publishers do not see the change yet. Now let the name server load the zone"),
        ("0", " s more (time to live). Run it again with --wait SECONDS."),
    ):
        code, out, _ = busway(site, "failback", "--wait", seconds, "--yes")
        assert code == 2
        assert expected in out
        settled(site, zone.name)
    code, out, _ = busway(site, "failback", "--force", "--json", "--yes")
    plain = json.loads(out)
    assert (code, plain["active"]) == (0, {"send": "west", "receive": "west"})
    assert plain["version"] == "2026112104"


def test_an_azure_zone_is_opened_without_a_request(site: Site) -> None:
    with_register(site, "azure_dns: {subscription: sub, resource_group: group, zone: example.test}")
    assert open_failover(site.folder, SystemClock()).register.where == "Azure DNS zone example.test"
