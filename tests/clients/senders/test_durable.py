"""The durable sender over the wire: outages, restarts, poison, kill -9."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_broker.faults import Effect, Fault
from busway_clients import Outbox, OutboxFull, SendFailed, WrongUse
from tests.clients.applications import Application
from tests.clients.senders.conftest import parcel
from tests.clients.site import Site, both_kinds
from tests.site import until


@pytest.fixture
def durable(site: Site, outbox: Outbox) -> Any:
    return lambda entity: site.classes.DurableSender(site.passive(entity), outbox)


def outage(site: Site) -> None:
    for name in ("west", "east"):
        site.go_down(name)


def recovery(site: Site) -> None:
    for name in ("west", "east"):
        site.come_up(name)


def test_without_an_outage_nothing_is_stored(site: Site, outbox: Outbox, durable: Callable[[str], Any]) -> None:
    entity = site.queue("sessions")
    message = parcel(1)
    accepted = site.call(durable(entity).send(message))
    assert accepted == ((message.message_id,), ())
    assert len(outbox) == 0
    assert site.bodies("west", entity) == ["parcel-1"]


@both_kinds
def test_outage_keeps_the_order_of_each_session(site: Site, outbox: Outbox, durable: Callable[[str], Any]) -> None:
    entity = site.queue("sessions")
    sender = durable(entity)
    site.call(sender.send(parcel(0)))
    outage(site)
    for number in range(1, 4):
        accepted = site.call(sender.send([parcel(number), parcel(number, "letter")], timeout=2))
        assert len(accepted.kept) == 2
    recovery(site)
    # What comes now must not overtake what waits; a session of which nothing waits is free.
    assert len(site.call(sender.send(parcel(4))).kept) == 1
    assert len(site.call(sender.send(parcel(0, "other"))).sent) == 1
    drained = site.call(sender.drain())
    assert (drained.sent, drained.held, drained.left, drained.error) == (7, 0, 0, None)
    assert len(outbox) == outbox.size_in_bytes == 0
    arrived = site.bodies("west", entity)
    assert [body for body in arrived if body.startswith("parcel")] == [f"parcel-{number}" for number in range(5)]
    assert [body for body in arrived if body.startswith("letter")] == [f"letter-{number}" for number in range(1, 4)]


def test_session_given_by_the_inner_sender_is_kept_in_order(site: Site, outbox: Outbox) -> None:
    entity = site.queue("sessions")
    passive = site.passive(entity, session_of=lambda raw: raw.application_properties["parcel"])
    sender = site.classes.DurableSender(passive, outbox)
    first, second = (ServiceBusMessage(text, application_properties={"parcel": "p"}) for text in ("1", "2"))
    outage(site)
    site.call(sender.send(first, timeout=2))
    recovery(site)
    assert site.call(sender.send(second)).kept == (second.message_id,)
    site.call(sender.drain())
    assert site.bodies("west", entity) == ["1", "2"]


def test_drain_in_an_outage_reports_why_it_stopped(site: Site, outbox: Outbox, durable: Callable[[str], Any]) -> None:
    sender = durable(site.queue())
    outage(site)
    site.call(sender.send(ServiceBusMessage("x"), timeout=2))
    drained = site.call(sender.drain(timeout=2))
    assert (drained.sent, drained.left) == (0, 1)
    assert isinstance(drained.error, SendFailed)
    assert len(outbox) == 1


def test_messages_with_the_same_id_are_counted_individually(sync_site: Site, outbox: Outbox) -> None:
    def replay(letters: Any) -> list[Any]:
        return [ServiceBusMessage(letter, message_id=letter, session_id="s") for letter in letters]

    with Application("sync", sync_site.places) as application:
        sender = application.classes.DurableSender(application.passive(sync_site.queue("sessions")), outbox)
        outage(sync_site)
        assert sender.send(replay("abb"), timeout=2) == ((), ("a", "b", "b"))
        drained = sender.drain(timeout=2)
        assert (drained.sent, drained.left) == (0, 3)
        recovery(sync_site)
        assert sender.drain().sent == 3


def test_poison_message_blocks_only_its_session(site: Site, outbox: Outbox, durable: Callable[[str], Any]) -> None:
    entity = site.queue("sessions")
    sender = durable(entity)
    outage(site)
    site.call(
        sender.send(
            [
                parcel(1),
                ServiceBusMessage("x" * 400_000, session_id="parcel"),
                parcel(3),
                parcel(1, "letter"),
                ServiceBusMessage("without a session"),
                parcel(2, "letter"),
            ],
            timeout=2,
        )
    )
    recovery(site)
    drained = site.call(sender.drain(timeout=10))
    assert (drained.sent, drained.held, drained.left) == (3, 2, 1)
    assert sorted(site.bodies("west", entity)) == ["letter-1", "letter-2", "parcel-1"]
    large, bare = sorted(outbox.held(), key=lambda each: each.lane or "~")
    assert (large.lane, bare.lane) == ("parcel", None)
    assert "MessageSizeExceededError" in large.fault
    assert "amqp:not-allowed" in bare.fault
    # A person decides: without the large one its session goes on, and a fault that stays is found again.
    outbox.remove([large.number])
    outbox.release(bare.number)
    drained = site.call(sender.drain(timeout=10))
    assert (drained.sent, drained.held, drained.left) == (1, 1, 0)
    assert site.bodies("west", entity)[-1] == "parcel-3"


def test_drain_with_closed_senders_holds_no_message(sync_site: Site, outbox: Outbox) -> None:
    with Application("sync", sync_site.places) as application:
        senders = application.senders(sync_site.queue())
        with application.classes.PassiveSender(senders) as passive:
            sender = application.classes.DurableSender(passive, outbox)
            outage(sync_site)
            sender.send(ServiceBusMessage("x"), timeout=2)
            with pytest.raises(WrongUse, match="got 0 s"):
                sender.drain(timeout=0)
            for each in senders.values():
                each.close()
            with pytest.raises(WrongUse, match="expected an open sender"):
                sender.drain(timeout=2)
    assert (len(outbox), outbox.held()) == (1, [])


def test_error_that_is_not_an_outage_is_raised(site: Site, outbox: Outbox, durable: Callable[[str], Any]) -> None:
    site.faults("west").add(Fault(effect=Effect.FILL))
    with pytest.raises(SendFailed, match="QuotaExceeded"):
        site.call(durable(site.queue()).send(ServiceBusMessage("x"), timeout=2))
    assert len(outbox) == 0


def test_messages_neither_sent_nor_kept_are_reported(sync_site: Site, tmp_path: Path) -> None:
    entity = sync_site.queue("sessions")
    outbox = Outbox(tmp_path / "small.db", max_messages=1)
    with Application("sync", sync_site.places) as application:
        sender = application.classes.DurableSender(application.passive(entity), outbox)
        outage(sync_site)
        sender.send(parcel(1), timeout=2)
        recovery(sync_site)
        letter, behind = parcel(1, "letter"), parcel(2)
        large = ServiceBusMessage("x" * 400_000, session_id="letter")
        with pytest.raises(
            SendFailed, match=r"MessageSizeExceededError.*; messages of 1 sessions in the outbox"
        ) as failed:
            sender.send([letter, behind, large], timeout=10)
        assert failed.value.outcome.deliveries["west"].accepted == (letter.message_id,)
        assert failed.value.unsent == (behind.message_id, large.message_id)
        with pytest.raises(OutboxFull, match="beside 1 ") as full:
            sender.send([parcel(2, "letter"), behind], timeout=10)
        assert full.value.outcome is not None
        assert full.value.outcome.accepted_by == ("west",)
        assert full.value.unsent == (behind.message_id,)
        outage(sync_site)
        with pytest.raises(OutboxFull) as full:
            sender.send(parcel(3, "letter"), timeout=2)
        assert isinstance(full.value.__cause__, SendFailed)
        recovery(sync_site)
    assert sync_site.bodies("west", entity) == ["letter-1", "letter-2"]
    assert len(outbox) == 1
    outbox.close()


def test_full_entity_stops_a_drain_and_holds_no_message(site: Site, durable: Callable[[str], Any]) -> None:
    sender = durable(site.queue())
    outage(site)
    site.call(sender.send(ServiceBusMessage("x"), timeout=2))
    recovery(site)
    site.faults("west").add(Fault(effect=Effect.FILL))
    drained = site.call(sender.drain(timeout=2))
    assert (drained.held, drained.left) == (0, 1)


def test_active_sender_leaves_unsent_messages_to_the_outbox(site: Site, outbox: Outbox) -> None:
    entity = site.queue()
    sender = site.classes.DurableSender(site.active(entity, success="all"), outbox)
    message = ServiceBusMessage("x")
    site.go_down("east")
    accepted = site.call(sender.send(message, timeout=2))
    assert accepted.kept == (message.message_id,)
    site.come_up("east")
    assert site.call(sender.drain()).sent == 1
    assert set(site.ids("west", entity)) == {message.message_id}


@both_kinds
def test_keep_draining_runs_until_it_is_stopped(site: Site, outbox: Outbox, durable: Callable[[str], Any]) -> None:
    entity = site.queue()
    sender = durable(entity)
    outage(site)
    site.call(sender.send(ServiceBusMessage("x"), timeout=2))
    recovery(site)
    stop = site.event()

    def stop_it() -> None:
        until(lambda: not len(outbox))
        site.set(stop)

    stopping = threading.Thread(target=stop_it)
    stopping.start()
    site.call(sender.keep_draining(stop, pause=0.01))
    stopping.join()
    assert len(outbox) == 0
    assert site.bodies("west", entity) == ["x"]
