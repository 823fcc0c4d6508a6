"""The passive sender over the wire: what switches roles, what does not, and how processes agree."""

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_broker.faults import Effect, Fault, Operation
from busway_clients import PassiveSender, RoleState, SendFailed, WrongUse
from busway_clients.errors import Unencodable
from tests.clients.applications import Answering, Application
from tests.clients.site import Site, both_kinds


def causes(error: Any) -> Any:
    assert isinstance(error.__cause__, ExceptionGroup)
    return error.__cause__.exceptions


SEND = frozenset({Operation.SEND})


def refusal(condition: Any, **options: Any) -> Fault:
    return Fault(effect=Effect.REFUSE, operations=SEND, condition=condition, **options)


def test_without_an_outage_one_namespace_is_used(site: Site) -> None:
    entity = site.queue()
    sender = site.passive(entity)
    outcome = site.call(sender.send([ServiceBusMessage("1"), ServiceBusMessage("2")]))
    assert outcome.accepted_by == ("west",)
    assert site.bodies("west", entity) == ["1", "2"]
    assert site.ids("east", entity) == []
    assert sender.state == RoleState("west", ("east",))


@both_kinds
def test_an_outage_swaps_the_roles_once_and_they_stay_swapped(site: Site) -> None:
    entity = site.queue()
    sender = site.passive(entity)
    site.call(sender.send(ServiceBusMessage("1")))
    site.go_down("west")
    outcome = site.call(sender.send(ServiceBusMessage("2"), timeout=5))
    assert outcome.accepted_by == ("east",)
    assert set(outcome.errors) == {"west"}
    assert sender.state == RoleState("east", ("west",))
    site.come_up("west")
    assert site.call(sender.send(ServiceBusMessage("3"))).deliveries.keys() == {"east"}
    site.call(sender.activate("west"))
    site.call(sender.send(ServiceBusMessage("4")))
    assert site.bodies("west", entity) == ["1", "4"]
    assert site.bodies("east", entity) == ["2", "3"]


@both_kinds
def test_closed_link_is_reopened_and_is_not_an_outage(site: Site) -> None:
    entity = site.queue()
    sender = site.passive(entity)
    for name in ("east", "west"):
        site.call(sender.activate(name))
        site.call(sender.send(ServiceBusMessage("before")))
    for name in ("west", "east"):
        site.faults(name).cut_connections()
    messages = [ServiceBusMessage("1"), ServiceBusMessage("2")]
    assert site.call(sender.send(messages[0], timeout=10)).accepted_by == ("west",)
    for fault in (refusal("amqp:link:detach-forced", times=1), refusal("amqp:internal-error", times=1)):
        site.faults("west").add(fault)
        assert site.call(sender.send(messages, timeout=10)).accepted_by == ("west",)
    assert sender.state == RoleState("west", ("east",))
    assert site.bodies("west", entity) == ["before", "1", "1", "2", "1", "2"]
    # Once: a namespace that still fails is away.
    site.faults("west").add(refusal("amqp:internal-error", times=2))
    assert site.call(sender.send(messages[1], timeout=10)).accepted_by == ("east",)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(effect=Effect.DROP_CONNECTION, operations=SEND),
        Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, operations=SEND),
        refusal("amqp:internal-error"),
        refusal("amqp:link:detach-forced"),
        refusal("com.microsoft:timeout"),
    ],
    ids=lambda fault: f"{fault.effect} {fault.condition}",
)
def test_unavailability_switches(sync_site: Site, fault: Any) -> None:
    entity = sync_site.queue()
    sync_site.faults("west").add(fault)
    with Application("sync", sync_site.places) as application:
        sender = application.passive(entity)
        message = ServiceBusMessage("x")
        assert sender.send(message, timeout=2).accepted_by == ("east",)
        assert sender.state.active == "east"
    assert sync_site.ids("east", entity) == [message.message_id]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(effect=Effect.THROTTLE),
        Fault(effect=Effect.FILL),
        Fault(effect=Effect.DISABLE),
        refusal("amqp:not-allowed"),
        refusal("amqp:unauthorized-access"),
        refusal("com.microsoft:argument-error"),
        refusal("amqp:link:message-size-exceeded"),
    ],
    ids=lambda fault: f"{fault.effect} {fault.condition}",
)
def test_other_errors_do_not_switch(sync_site: Site, fault: Any) -> None:
    entity = sync_site.queue()
    sync_site.faults("west").add(fault)
    with Application("sync", sync_site.places) as application:
        sender = application.passive(entity)
        with pytest.raises(SendFailed) as caught:
            sender.send(ServiceBusMessage("x"), timeout=2)
        assert caught.value.errors.keys() == {"west"}
        assert sender.state.active == "west"
    assert sync_site.ids("east", entity) == []


@both_kinds
@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x01\x00\x00"], ids=["a page", "amqp"]
)
def test_peer_that_does_not_speak_amqp_switches(site: Site, answer: bytes) -> None:
    entity = site.queue()
    with Answering(answer) as place, Application(site.kind, {"west": place}) as lost:
        senders = {**lost.senders(entity), "east": site.senders(entity)["east"]}
        sender = site.classes.PassiveSender(senders)
        assert site.call(sender.send(ServiceBusMessage("x"), timeout=5)).accepted_by == ("east",)
        assert sender.state.active == "east"


@pytest.mark.parametrize("others", [0, 1])
def test_unencodable_message_does_not_switch(site: Site, others: int) -> None:
    entity = site.queue()
    sender = site.passive(entity)
    message = ServiceBusMessage("x", application_properties={"secret": 2**40})
    with pytest.raises(SendFailed, match="Unencodable") as caught:
        site.call(sender.send([*[ServiceBusMessage("y")] * others, message], timeout=5))
    assert isinstance(caught.value.errors["west"], Unencodable)
    assert sender.state == RoleState("west", ("east",))
    assert site.ids("west", entity) == site.ids("east", entity) == []


@both_kinds
def test_a_closed_sender_and_an_invalid_timeout_are_wrong_use(site: Site) -> None:
    senders = site.senders(site.queue())
    sender = site.classes.PassiveSender(senders)
    for timeout in (0, -1):
        with pytest.raises(WrongUse, match=f"got {timeout} s, expected more than 0"):
            site.call(sender.send(ServiceBusMessage("x"), timeout=timeout))
    site.call(sender.send(ServiceBusMessage("x")))
    for each in senders.values():
        site.call(each.close())
    for messages in (ServiceBusMessage("x"), [ServiceBusMessage("x")] * 2):
        with pytest.raises(WrongUse, match="expected an open sender"):
            site.call(sender.send(messages, timeout=5))


def test_missing_entity_does_not_switch(sync_site: Site) -> None:
    with Application("sync", sync_site.places) as application, pytest.raises(SendFailed, match="EntityNotFoundError"):
        application.passive("nowhere").send(ServiceBusMessage("x"), timeout=2)


def test_if_both_fail_the_roles_stay_and_both_errors_are_raised(site: Site) -> None:
    entity = site.queue()
    sender = site.passive(entity)
    site.go_down("west")
    site.faults("east").add(Fault(effect=Effect.THROTTLE))
    with pytest.raises(SendFailed, match=r"west accepted 0 of 1, .*; east accepted 0 of 1, ") as caught:
        site.call(sender.send(ServiceBusMessage("x"), timeout=2))
    assert [type(error).__name__ for error in causes(caught.value)] == [
        "ServiceBusConnectionError",
        "ServiceBusServerBusyError",
    ]
    assert sender.state == RoleState("west", ("east",))


def test_invalid_settings_are_reported_by_the_constructor() -> None:
    nobody: dict[str, Any] = {"west": None, "east": None}
    with pytest.raises(WrongUse, match="got none, expected an active"):
        PassiveSender({})
    with pytest.raises(WrongUse, match="got 'north', expected one of west, east"):
        PassiveSender(nobody).activate("north")
