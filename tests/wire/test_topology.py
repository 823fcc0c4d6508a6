"""`busway plan` and `apply` with the local broker, over the API of the SDKs: under traffic and interrupted."""

import threading

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from cli.topology import application
from cli.topology.difference import Step
from shared.amqp.values import long
from tests.site import Site
from tests.wire.topology_pair import pair

__all__ = ["pair"]

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")


def test_an_empty_pair_gets_what_its_tasks_need_and_a_second_run_changes_nothing(pair: Site) -> None:
    planned = pair.run("plan")
    assert planned.exit_code == 3
    assert planned.output.startswith("8 steps to take.\n")
    applied = pair.run("apply", "--yes")
    assert applied.exit_code == 0, applied.output
    assert applied.output.endswith("8 steps taken. Every entity is as the tasks need it.\n")
    again = pair.run("apply", "--yes")
    assert (again.exit_code, again.output.splitlines()[0]) == (0, "Every entity is as the tasks need it.")

    client = pair.administrator("west")
    subscription = client.get_subscription("orders", "replication")
    assert (subscription.requires_session, subscription.max_delivery_count) == (True, 4320)
    [rule] = client.list_rules("orders", "replication")
    assert rule.name == "busway"
    assert rule.action is not None
    assert rule.action.sql_expression == "SET replication = 1"
    assert client.get_queue("orders-rejected").requires_duplicate_detection is False


def test_a_replica_is_marked_from_the_first_message_on(pair: Site) -> None:
    """A new subscription must not have `$Default` for a moment: what passes then bounces."""
    pair.administrator("west").create_topic("orders")
    ends = threading.Event()

    def send() -> None:
        while not ends.is_set():
            pair.send("west/orders", ServiceBusMessage(b"x", session_id="one"))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        assert pair.run("apply", "--yes").exit_code == 4  # the topic was created without duplicate detection: drift
    finally:
        ends.set()
        sending.join()
    received = pair.there("west/orders/Subscriptions/replication")
    assert received
    assert all(message.application_property("replication") == long(1) for message in received)


def test_replacing_a_rule_under_traffic_loses_and_doubles_no_message(pair: Site) -> None:
    pair.run("apply", "--yes")
    client = pair.administrator("west")
    client.delete_rule("orders", "replication", "busway")
    client.create_rule("orders", "replication", "$Default")
    sent = 0
    ends = threading.Event()

    def send() -> None:
        nonlocal sent
        while not ends.is_set() or sent < 20:
            pair.send("west/orders", ServiceBusMessage(b"x", session_id="one", message_id=f"m{sent}"))
            sent += 1

    sending = threading.Thread(target=send)
    sending.start()
    try:
        changed = pair.run("apply", "--yes")
    finally:
        ends.set()
        sending.join()
    assert changed.exit_code == 0, changed.output
    [rule] = client.list_rules("orders", "replication")
    assert isinstance(rule.filter, SqlRuleFilter)
    assert rule.filter.sql_expression == "replication IS NULL"
    assert pair.active("west/orders/Subscriptions/replication") == sent


class Killed(BaseException):
    """Ends a command where it is: nothing catches it."""


@pytest.mark.parametrize("steps", range(8))
def test_an_apply_that_ends_after_any_step_is_finished_by_the_next(
    pair: Site, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    carry_out = application._carry_out
    taken = 0

    def killed(client: ServiceBusAdministrationClient, step: Step) -> None:
        nonlocal taken
        if taken == steps:
            raise Killed
        carry_out(client, step)
        taken += 1

    with monkeypatch.context() as patched:
        patched.setattr(application, "_carry_out", killed)
        with pytest.raises(Killed):
            pair.run("apply", "--yes")
    rest = pair.run("apply", "--yes")
    assert (rest.exit_code, f"{8 - steps} step" in rest.output) == (0, True)


def test_ctrl_c_says_how_far_it_came(pair: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = application._carry_out

    def interrupted(client: ServiceBusAdministrationClient, step: Step) -> None:
        carry_out(client, step)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(application, "_carry_out", interrupted)
        cancelled = pair.run("apply", "--yes")
    assert cancelled.exit_code == 130
    assert "Cancelled after 0 steps taken. Run the command again for the rest." in cancelled.output
    assert pair.run("apply", "--yes").exit_code == 0
