"""`busway rejects`, and what `busway messages` shows and drops, with the local broker."""

import time
from typing import Any

import pytest
from azure.servicebus import AutoLockRenewer

from busway_broker.admin.thread import RunningAdmin
from shared.amqp.values import long, string
from shared.errors import MessageRejected
from shared.line.rejection import set_aside, wrapped
from shared.line.routing import Target
from shared.line.states import Rejection, Stage
from shared.message.arrival import Arrival, Origin
from tests.end_to_end.dead_letter_site import DeadLetterSite, ids, many, site
from tests.messages import delivered

__all__ = ["site"]


NOW = round(time.time() * 1000)


def more_tasks(site: DeadLetterSite, *, source: str, rejects: str) -> None:
    """Add a task from the queue *source* with these *rejects*."""
    source, target = f"{{connection: west, queue: {source}}}", "{target: {connection: east, queue: small}}"
    task = f"task: more\nsource: {source}\nroutes: [{target}]\nrejects: {{connection: west, queue: {rejects}}}\n"
    (site.folder / "tasks" / "more.yaml").write_text(task)


def rejected(
    number: int, *, is_wrapped: bool = False, task: str = "gone", source: str = "orders", **options: Any
) -> bytes:
    """Return a message as a task that no longer exists has sent it to its rejects."""
    arrival = Arrival(Origin("west", source), number, None, NOW)
    target = Target(object(), "west", "rejected")  # type: ignore[arg-type] # nothing is sent
    rejection = Rejection(MessageRejected("Bad", "it is bad"), Stage.EDITED, task)
    make = wrapped if is_wrapped else set_aside
    return make(target, delivered(number, **options), arrival, rejection).content


def test_rejects_go_back_to_the_source_without_their_stamps(site: DeadLetterSite) -> None:
    site.publish(
        "west/rejected", [rejected(1, named={"a": long(1)}), rejected(2, is_wrapped=True, named={"a": long(2)})]
    )
    listed = site.run("rejects", "list", "orders-west-to-east")
    assert "Bad     west/orders, task gone" in listed.stdout
    shown = site.run("rejects", "show", "west/rejected", "2").stdout
    assert "the message is the body of this one" in shown
    assert site.run("rejects", "resend", "orders-west-to-east", "--all", "--same-ids", "--yes").exit_code == 0
    found = site.there("west/orders")
    assert [{name for name, _ in message.application_properties()} for message in found] == [
        {"a", "repl-resent-from"}
    ] * 2
    assert ids(found) == ["m-1", "m-2"]


def forged(number: int, source: str, **options: Any) -> bytes:
    """Return a message of a producer with the stamps of a rejected one."""
    stamps = {"reason": "Bad", "task": "orders-west-to-east", "source": source, "sequence": "1"}
    named = {f"repl-reject-{name}": string(text) for name, text in stamps.items()}
    return delivered(number, named=named, **options)


@pytest.mark.parametrize("source", ["west/once", "east/orders", "west/rejected", "west/orders/$DeadLetterQueue", ""])
def test_a_producer_does_not_choose_where_its_message_is_resent(site: DeadLetterSite, source: str) -> None:
    site.bury("orders", [forged(1, source)])
    assert site.run("dead", "resend", "west/orders", "--all", "--same-ids", "--yes").exit_code == 0
    assert ids(site.there("west/orders")) == ["m-1"]
    # Nor in an entity whose stamps count: only the sources of its tasks do.
    site.publish("west/rejected", [forged(2, source), forged(3, "west/orders")])
    done = site.run("rejects", "resend", "west/rejected", "--all", "--same-ids", "--yes")
    assert "1 left: does not say where it came from" in done.stdout
    assert ids(site.there("west/orders")) == ["m-1", "m-3"]


def test_a_forged_reject_is_neither_unwrapped_nor_shown_with_its_reason(site: DeadLetterSite) -> None:
    """A wrapped message could have sections that its producer may not send."""
    inner = delivered(7, body=b"wrapped")
    site.bury("orders", [forged(1, "west/orders", body=inner, content_type="application/vnd.busway.amqp-message")])
    assert "Broken  west/orders\n" in site.run("dead", "list", "west/orders").stdout
    assert site.run("dead", "resend", "west/orders", "--all", "--same-ids", "--yes").exit_code == 0
    (found,) = site.there("west/orders")
    assert found.body == inner


def test_a_reject_of_an_entity_that_does_not_exist_stays_and_the_others_go_on(
    site: DeadLetterSite,
) -> None:
    more_tasks(site, source="gone", rejects="rejected")
    site.publish("west/rejected", [rejected(1, source="gone"), rejected(2)])
    with RunningAdmin(site.broker) as admin:
        where = {"WEST__administration": admin.address("west")}
        done = site.run("rejects", "resend", "west/rejected", "--all", "--yes", **where)
    assert (done.exit_code, "1 left: west/gone does not exist: create it" in done.stdout) == (1, True), done.stdout
    assert (ids(site.there("west/orders")), ids(site.there("west/rejected"))) == (["m-2"], ["m-1"])


def test_a_session_that_a_consumer_has_locked_is_left_and_named(site: DeadLetterSite) -> None:
    contents = [rejected(n, session_id=f"s-{n % 2}") for n in range(4)]
    more_tasks(site, source="orders", rejects="rejected-sessions")
    site.publish("west/rejected-sessions", contents)
    with (
        site.receiver("west/rejected-sessions", session_id="s-1") as consumer,
        AutoLockRenewer() as renewer,
    ):
        renewer.register(consumer, consumer.session)  # its lock lasts five seconds, and the command waits for it
        done = site.run("rejects", "resend", "west/rejected-sessions", "--all", "--same-ids", "--yes")
    assert done.exit_code == 1
    assert "2 left: its session is locked by another receiver" in done.stdout
    assert ids(site.there("west/orders")) == ["m-0", "m-2"]
    assert ids(site.there("west/rejected-sessions")) == ["m-1", "m-3"]
    assert site.run("rejects", "drop", "west/rejected-sessions", "--all", "--yes").exit_code == 0


def test_a_drop_counts_first_and_then_lets_the_service_delete(site: DeadLetterSite) -> None:
    site.publish("west/orders", many(1_200))
    drop = ("messages", "drop", "west/orders", "--all")
    counted = site.run(*drop)
    assert (counted.exit_code, "west/orders: 1,200 messages" in counted.stdout) == (0, True)
    assert len(site.there("west/orders")) == 1_200
    assert site.run("messages", "drop", "west/orders", "--older-than", "1h", "--yes").stdout == "       0 dropped\n"
    with site.receiver("west/orders") as receiver:
        (locked,) = receiver.receive_messages(1)
        dropped = site.run(*drop, "--yes")
        receiver.abandon_message(locked)
    assert (dropped.exit_code, dropped.stderr) == (1, "")
    assert "   1,199 dropped\n       1 left: locked by a receiver, deferred or scheduled\n" in dropped.stdout
    assert site.run(*drop, "--yes").exit_code == 0
    assert site.there("west/orders") == []


def test_a_drop_by_rule_and_one_of_sessions_receive_the_messages(site: DeadLetterSite) -> None:
    site.bury("orders", many(6))
    done = site.run("messages", "drop", "west/orders/$DeadLetterQueue", "--where", "n < 4", "--yes")
    assert (done.exit_code, "4 dropped" in done.stdout) == (0, True)
    assert ids(site.dead()) == ["m-4", "m-5"]
    site.publish("west/rejected-sessions", many(4))
    done = site.run("messages", "drop", "west/rejected-sessions", "--all", "--yes")
    assert (done.exit_code, "the service deletes no batches of this entity" in done.stderr) == (0, True)
    assert site.there("west/rejected-sessions") == []
    missing = site.run("messages", "drop", "west/nothing", "--all", "--yes")
    assert (missing.exit_code, "west/nothing: its messages cannot be deleted" in missing.stderr) == (1, True)


def test_the_messages_of_a_task_are_those_of_its_source(site: DeadLetterSite) -> None:
    site.publish("west/orders", many(2))
    listed = site.run("messages", "list", "orders-west-to-east")
    assert (listed.exit_code, listed.stdout.splitlines()[0][:23]) == (0, "west/orders: 2 messages")
    everything = site.run("messages", "list")
    assert (everything.exit_code, "west/orders: 2 messages" in everything.stdout) == (0, True), everything.stderr
