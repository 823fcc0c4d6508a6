"""Messages and entries that consumers at two namespaces cannot process, over the wire."""

from datetime import datetime
from typing import Any, NamedTuple

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusSubQueue

from busway_clients import by_property
from busway_clients.rows import Write
from busway_clients.sessions import Journal, Unprocessable
from busway_clients.sessions.leases import LEASE_KEY
from busway_clients.sessions.order import arrival_of
from tests.clients.sessions.consumers import SETTINGS, Effects, Regions
from tests.site import until


class Received(NamedTuple):
    application_properties: dict[Any, Any]
    message_id: str = "m"
    session_id: str = "s"
    sequence_number: int = 1
    enqueued_time_utc: datetime | None = None


class ErrorThatCannotBeEncoded(Exception):
    def __str__(self) -> str:
        return "☃" * 40_000 + "\ud800"


def test_poison_message_is_dead_lettered_and_its_reason_recorded(regions: Regions, table_store: Any) -> None:
    error: Any = ErrorThatCannotBeEncoded()  # as applications do, whatever the types say
    raised = {
        "m2": Unprocessable("Broken", "no such shipment"),
        "m3": ValueError("a body that must not be reported"),
        "m4": Unprocessable("Long\ud800", "☃" * 40_000),
        "m5": Unprocessable("Typed", error),
    }

    def act(delivery: Any) -> None:
        if delivery.message_id in raised:
            raise raised[delivery.message_id]

    regions.send(["m1", "m2", "m3", "m4", "m5", "m6"], "s")
    effects = Effects(act)
    with regions.consumers(table_store, effects):
        regions.until_empty()
    assert effects.of("s") == ["m1", "m6"]
    for client in regions.clients.values():
        with client.get_queue_receiver(regions.queue(), sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            dead: list[Any] = []
            while len(dead) < len(raised):
                dead += receiver.receive_messages(4, max_wait_time=5)
            dead_letters = [(one.message_id, one.dead_letter_reason, one.dead_letter_error_description) for one in dead]
        assert dead_letters[0] == ("m2", "Broken", "no such shipment")
        assert dead_letters[1][:2] == ("m3", "ValueError")
        assert "body" not in dead_letters[1][2]
        assert dead_letters[2] == ("m4", "Long?", "☃" * 2047 + "…")
        assert dead_letters[3] == ("m5", "Typed", "☃" * 2047 + "…")
    entries = Journal(table_store, SETTINGS).record("s", ["m1", *raised]).entries
    assert [entries[name].state.value for name in ("m1", *raised)] == ["completed", *["faulted"] * 4]
    assert entries["m3"].attempt == 3


def test_malformed_entry_blocks_only_its_session(
    regions: Regions, table_store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Journal(table_store, SETTINGS).open()
    table_store.write("s.bad", [Write(LEASE_KEY, {"Open": 0, "Worker": "?"})])
    regions.send(["m1"], "bad", sites=["west"])
    regions.send(["m2"], "good", sites=["west"])
    effects = Effects()
    with regions.consumers(table_store, effects, ["west"]):
        effects.wait_for(1)
        until(lambda: "s.bad, row lease: Site is missing" in caplog.text)
    assert effects.done == [("good", "m2")]
    assert regions.active()["west"] == 1


def test_message_without_identity_is_dead_lettered_and_does_not_block_its_session(
    regions: Regions, table_store: Any
) -> None:
    with regions.clients["west"].get_queue_sender(regions.queue()) as sender:
        sender.send_messages(
            [
                ServiceBusMessage("a", message_id="m1", session_id="s", application_properties={"status": "1"}),
                ServiceBusMessage("b", message_id="m2", session_id="s"),
                ServiceBusMessage(
                    "c",
                    message_id="m3",
                    session_id="s",
                    application_properties={"status": "2", "repl-path": "east", "repl-sequence": "9" * 5000},
                ),
                ServiceBusMessage("d", message_id="m4", session_id="s", application_properties={"status": "3"}),
            ]
        )
    effects = Effects()
    with regions.consumers(table_store, effects, ["west"], identity="status"):
        effects.wait_for(2)
        regions.until_empty(sites=["west"])
    assert effects.of("s") == ["1", "3"]
    with regions.clients["west"].get_queue_receiver(
        regions.queue(), sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        dead = [receiver.receive_messages(1, max_wait_time=5)[0] for _ in range(2)]
    assert [(one.message_id, one.dead_letter_reason) for one in dead] == [
        ("m2", "NotRecognised"),
        ("m3", "NotRecognised"),
    ]
    assert "a repl-sequence of 5000 digits, expected at most 19" in str(dead[1].dead_letter_error_description)


@pytest.mark.parametrize(
    ("properties", "settings", "problem"),
    [
        ({"repl-path": "x" * 257}, {}, "has a repl-path of 257 characters, expected at most 256"),
        ({"status": "x" * 1025}, {"identity": "status"}, "has an id of 1025 characters, expected at most 1024"),
        ({"n": "9" * 5000}, {"number": "n"}, "has no property n that is a whole number"),
        ({"n": "9" * 19, "repl-path": "east", "repl-sequence": "9" * 19}, {"number": "n"}, None),
    ],
)
def test_id_that_does_not_fit_into_a_journal_is_rejected(properties: Any, settings: Any, problem: str | None) -> None:
    settings = {"identity": None, "number": None, **settings}
    message: Any = Received(properties)
    assert arrival_of(message, "west", **settings).problem == problem


def test_ids_that_cannot_be_decoded_stay_different() -> None:
    messages: list[Any] = [Received({b"digest": digest}) for digest in (b"\xff\x01", b"\xff\x02", b"\xfe\x01")]
    assert len({arrival_of(message, "west", "digest", None).message_id for message in messages}) == 3
    assert len({by_property("digest")(message) for message in messages}) == 3
