"""`busway dead` and `busway rejects` with the local broker."""

import json
import re
import signal
import time
from typing import Any

import pytest

from busway_broker.admin.thread import RunningAdmin
from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from cli.demo.messages import read_templates
from cli.files import locked
from cli.letters.ledger_file import ledger_of
from shared.amqp.values import NULL, Value, char, described, long, string, symbol, timestamp, ubyte
from shared.ends.service_bus.management import ManagementConnection
from shared.resend.places import Place
from tests.end_to_end.dead_letter_site import DeadLetterSite, ids, many, property_of, site
from tests.messages import delivered

pytestmark = pytest.mark.long

__all__ = ["site"]


TYPES: dict[str, Value] = {
    "long": long(2**40),
    "ubyte": ubyte(7),
    "time": timestamp(1_763_874_000_123),
    "offset": described(symbol("com.microsoft:datetime-offset"), long(638_000_000_000_000_000)),
    "char": char("é"),
    "null": NULL,
}


def test_groups_show_reason_source_and_age_and_single_messages_no_body(site: DeadLetterSite) -> None:
    site.bury("orders", many(3, body=b"secret"), "MaxDeliveryCountExceeded")
    site.bury("orders", many(1), None)
    site.bury("orders", [delivered(9, message_id="\x1b]0;evil\x07")], "two\nlines")
    listed = site.run("dead", "list")
    assert listed.exit_code == 0
    assert "west/orders/$DeadLetterQueue: 5 messages, the oldest from " in listed.stdout
    assert re.search(r"^       3  \d+ s  +MaxDeliveryCountExceeded  west/orders$", listed.stdout, re.MULTILINE)
    assert "(no reason)" in listed.stdout
    assert r"two\nlines" in listed.stdout
    assert "east/orders/$DeadLetterQueue: no messages" in listed.stdout
    each = site.run("dead", "list", "ORDERS-west-to-east", "--each")
    assert len(each.stdout.splitlines()) == 2 + 5
    assert r"\x1b]0;evil\x07" in each.stdout
    assert "secret" not in listed.stdout + each.stdout
    groups = json.loads(site.run("dead", "list", "west/orders", "--json").stdout)
    assert [(group["reason"], group["count"]) for group in groups["groups"]] == [
        ("MaxDeliveryCountExceeded", 3),
        ("(no reason)", 1),
        ("two\nlines", 1),
    ]
    assert all(max(map(len, text.stdout.splitlines())) <= 80 for text in (listed, each))


def test_one_message_is_shown_with_types_and_body(site: DeadLetterSite) -> None:
    site.bury("orders", [delivered(1, named=TYPES, body=b'{"a": [1]}')])
    shown = site.run("dead", "show", "west/orders", "1").stdout
    assert "reason: Broken" in shown
    assert "  property long: 1099511627776 (long)\n" in shown
    assert '    {\n      "a": [\n        1\n' in shown
    assert "journal.yaml: names no blob container" in shown
    hidden = site.run("dead", "show", "west/orders", "1", "--no-body").stdout
    assert '"a"' not in hidden
    missing = site.run("dead", "show", "west/orders", "77")
    assert (missing.exit_code, "77: no message has this sequence number" in missing.stderr) == (1, True)


def test_what_is_resent_keeps_types_and_sections_and_loses_only_the_reason(site: DeadLetterSite) -> None:
    before = delivered(1, named=TYPES, subject=string("s"), time_to_live=60_000, body=b"\x00\xff")
    site.bury("orders", [before, delivered(2)])
    shown = site.run("dead", "resend", "west/orders", "--all", "--same-ids")
    assert (shown.exit_code, "2 to west/orders" in shown.stdout, len(site.dead())) == (0, True, 2)
    assert shown.stderr == "Nothing was changed: --yes does it.\n"
    done = site.run("dead", "resend", "west/orders", "--where", "sys.MessageId = 'm-1'", "--same-ids", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    (found,) = site.there("west/orders")
    assert dict(found.application_properties()) == {
        **TYPES,
        "repl-resent-from": string(f"west/orders/$deadletterqueue/1/{stamped(found)}"),
    }
    assert (found.subject, found.time_to_live, found.body) == ("s", 60_000, b"\x00\xff")
    assert ids(site.dead()) == ["m-2"]


def test_what_the_entity_would_drop_as_a_duplicate_stays(site: DeadLetterSite) -> None:
    """The queue has accepted the id of the dead letter, and its window is not over."""
    site.publish("west/once", many(2))
    with site.receiver("west/once") as receiver:
        for message in receiver.receive_messages(2, max_wait_time=5):
            receiver.dead_letter_message(message, reason="Broken")
    with RunningAdmin(site.broker) as admin:
        where = {"WEST__administration": admin.address("west")}
        left = site.run("dead", "resend", "west/once", "--all", "--yes", **where)
        assert left.exit_code == 1
        assert "2 left: west/once detects duplicates within 0:10:00 and would drop the copy" in left.stdout
        assert (len(site.dead("once")), site.there("west/once")) == (2, [])
        # The loss that this prevents.
        dropped = site.run("dead", "resend", "west/once", "--number", "1", "--same-ids", "--yes")
        assert (dropped.exit_code, site.there("west/once")) == (0, [])
        assert site.run("dead", "resend", "west/once", "--all", "--new-ids", "--yes").exit_code == 0
        assert [message.application_property("n") for message in site.there("west/once")] == [long(1)]
        # This queue detects none.
        site.bury("orders", many(1))
        assert site.run("dead", "resend", "west/orders", "--all", "--yes", **where).exit_code == 0


def test_without_an_answer_about_duplicates_nothing_is_sent(site: DeadLetterSite) -> None:
    site.bury("orders", many(1))
    asked = site.run("dead", "resend", "west/orders", "--all", "--yes")
    assert asked.exit_code == 1
    assert "west/orders: it is not known whether it detects duplicates" in asked.stderr
    assert "--same-ids" in asked.stderr
    assert len(site.dead()) == 1


def stamped(message: Any) -> str:
    return str(property_of(message, "repl-resent-from")).rpartition("/")[2]


def test_edits_and_a_new_id_and_another_target(site: DeadLetterSite) -> None:
    site.bury("orders", many(2))
    options = (
        "--set",
        "priority = 5",
        "--set",
        "sys.Subject = 'again'",
        "--remove",
        "n",
        "--editors",
        "orders-west-to-east",
    )
    done = site.run("dead", "resend", "west/orders", "--all", "--to", "east/orders", "--new-ids", *options, "--yes")
    assert done.exit_code == 0
    found = site.there("east/orders")
    assert [
        (property_of(message, "priority"), property_of(message, "checked"), message.subject) for message in found
    ] == [(5, "yes", "again")] * 2
    assert all(message.application_property("n") is None for message in found)
    assert len({*ids(found)}) == 2
    assert not {"m-0", "m-1"} & {*ids(found)}


def test_wrong_options_are_reported_before_anything_is_sent(site: DeadLetterSite) -> None:
    site.bury("orders", many(1))
    for options, expected in (
        ((), "none are selected"),
        (("--where", "n = ("), "--where"),
        (("--where", "sys.Nothing = 1"), "unknown broker property sys.Nothing"),
        (("--all", "--set", "n ="), "--set"),
        (("--all", "--older-than", "soon"), "is not a duration"),
        (("--all", "--to", "north/x"), "expected west/ENTITY, east/ENTITY"),
        (("--all", "--to", "west/news/Subscriptions/app"), "takes no messages from senders"),
        (("--all", "--editors", "gone"), "unknown task"),
    ):
        failed = site.run("dead", "resend", "west/orders", *options, "--yes")
        assert failed.exit_code == 1
        assert expected in failed.stderr
    for place in ("north/orders", "west", "nothing"):
        assert "expected west/ENTITY" in site.run("dead", "list", place).stderr
    # What a shell makes of west/orders/$DeadLetterQueue: the messages of the queue itself.
    for arguments in (("messages", "drop", "west/orders/", "--all", "--yes"), ("evacuate", "west/", "--to", "east")):
        assert "ends with a slash" in site.run(*arguments).stderr
    assert len(site.dead()) == 1


def test_a_subscription_needs_another_target_because_all_subscriptions_would_get_copies(site: DeadLetterSite) -> None:
    site.bury("orders", [])

    def put(namespace: Namespace) -> None:
        namespace.subscription("news", "app").backlog.dead_letters.add(read_content(delivered(1)))

    site.broker.inspect("west", put)
    place = "west/news/Subscriptions/app"
    refused = site.run("dead", "resend", place, "--all", "--yes")
    assert refused.exit_code == 1
    assert "all its subscriptions would get them: use --to" in refused.stdout
    assert site.run("dead", "resend", place, "--all", "--to", "west/news", "--same-ids", "--yes").exit_code == 0
    assert [len(site.there(f"west/news/Subscriptions/{name}")) for name in ("app", "b")] == [1, 1]


def test_a_message_too_large_for_the_target_stays_and_the_others_go_on(site: DeadLetterSite) -> None:
    site.bury("large", [delivered(1), delivered(2, body=b"x" * 400_000), delivered(3)])
    done = site.run("dead", "resend", "west/large", "--all", "--to", "east/orders", "--yes")
    assert done.exit_code == 1
    assert "1 left: the target refuses it: east/orders: the message has" in done.stdout
    assert "(sequence number 2)" in done.stdout
    assert ids(site.there("east/orders")) == ["m-1", "m-3"]
    assert ids(site.dead("large")) == ["m-2"]


def test_two_runs_at_once_exclude_each_other_and_a_dead_one_leaves_no_lock(site: DeadLetterSite) -> None:
    site.bury("orders", many(1))
    path = site.folder / ledger_of(Place("west", "west", "WEST", "orders/$DeadLetterQueue"))
    with locked(path):
        second = site.run("dead", "resend", "west/orders", "--all", "--same-ids", "--yes")
    assert second.exit_code == 1
    assert "is in use by process" in second.stderr
    assert len(site.dead()) == 1
    # The text of the first one is still in the file of the lock.
    assert path.with_name(path.name + ".lock").read_text().startswith("process")
    assert site.run("dead", "resend", "west/orders", "--all", "--same-ids", "--yes").exit_code == 0


def test_an_export_is_read_by_try_and_by_the_demo_and_allows_a_drop(site: DeadLetterSite) -> None:
    site.bury("orders", [delivered(1, named=TYPES, body=b'{"n": 1}'), delivered(2)])
    file = site.folder / "saved.jsonl"
    assert site.run("dead", "export", "west/orders", str(file), "--number", "1").exit_code == 0
    assert file.stat().st_mode & 0o077 == 0
    tried = site.run("try", "orders-west-to-east", "--messages", str(file))
    assert (tried.exit_code, "would be sent to east/orders" in tried.stdout) == (0, True)
    (template,) = read_templates(file)
    assert (template.body, template.properties["long"]) == (b'{"n": 1}', long(2**40))
    refused = site.run("dead", "drop", "west/orders", "--yes")
    assert (refused.exit_code, "none are selected" in refused.stderr) == (1, True)
    assert site.run("dead", "drop", "west/orders", "--all").exit_code == 0
    dropped = site.run("dead", "drop", "west/orders", "--exported", str(file), "--yes")
    assert (dropped.exit_code, "1 dropped" in dropped.stdout) == (0, True)
    assert ids(site.dead()) == ["m-2"]
    for expected in ("1 sent", "1 not sent: an earlier run had sent them"):
        again = site.run("dead", "resend", "west/orders", "--all", "--file", str(file), "--to", "east/orders", "--yes")
        assert (again.exit_code, expected in again.stdout) == (0, True)
    (resent,) = site.there("east/orders")
    assert resent.application_property("long") == long(2**40)
    assert resent.application_property("DeadLetterReason") is None
    # An export of another entity says nothing about these.
    assert site.run("rejects", "drop", "west/rejected", "--exported", str(file), "--yes").exit_code == 1
    assert site.run("dead", "drop", "west/orders", "--older-than", "1h", "--yes").exit_code == 0
    assert site.run("dead", "drop", "west/orders", "--all", "--yes").exit_code == 0
    assert site.dead() == []


def test_a_message_that_came_after_the_start_of_a_drop_is_not_left(
    site: DeadLetterSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = ManagementConnection.delete_batch

    async def late(self: ManagementConnection, *arguments: Any) -> int:
        deleted = await delete(self, *arguments)
        if not deleted:
            site.bury("orders", [delivered(None, message_id="late")])
        return deleted

    monkeypatch.setattr(ManagementConnection, "delete_batch", late)
    site.bury("orders", many(3))
    dropped = site.run("dead", "drop", "west/orders", "--all", "--yes")
    assert (dropped.exit_code, dropped.stdout.split()) == (0, ["3", "dropped"])
    assert ids(site.dead()) == ["late"]


def test_ctrl_c_ends_after_the_step_and_prints_a_summary(site: DeadLetterSite) -> None:
    site.bury("orders", many(60))
    process = site.start("dead", "resend", "west/orders", "--all", "--to", "east/orders", "--rate", "10", "--yes")
    while process.poll() is None and len(site.there("east/orders")) < 1:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, "stopped: locks are released" in err) == (1, True)
    arrived = ids(site.there("east/orders"))
    assert f"{len(arrived):>8,} sent" in out
    assert arrived + ids(site.dead()) == [f"m-{n}" for n in range(60)]
    assert site.run("dead", "resend", "west/orders", "--all", "--to", "east/orders", "--yes").exit_code == 0
    assert ids(site.there("east/orders")) == [f"m-{n}" for n in range(60)]
