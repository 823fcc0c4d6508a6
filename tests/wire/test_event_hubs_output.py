"""The output for Event Hubs against a broker that its SDK talks to."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.core.hub import Partition
from busway_broker.errors import MESSAGE_SIZE_EXCEEDED
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import NamespaceFaults, RunningBroker
from shared.amqp.errors import NOT_ALLOWED
from shared.amqp.values import binary, string
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.output import CALLS_AT_ONCE, EventHubsOutput
from shared.ends.namespace import SETTING_FORM
from shared.errors import BuswayError, ConfigError, MessageRejected, TargetRefused, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.messages import delivered
from tests.wire.sending import SECONDS, closing, event_hubs, to_hub

type ReadPartitions = Callable[[], list[list[Message]]]

BUSY = "com.microsoft:server-busy"


def event(
    number: int | str, *, key: str | None = None, partition: str | None = None, body: bytes = b"body", **options: Any
) -> Outgoing:
    annotated = {} if key is None else {"x-opt-partition-key": string(key)}
    content = delivered(None, message_id=f"e-{number}", annotated=annotated, body=body, **options)
    return Outgoing(content, f"e-{number}", None, key, partition)


@pytest.fixture
def west(broker: RunningBroker) -> str:
    return broker.connection_string("hubs")


@pytest.fixture
def hub(entity: Callable[[str], str]) -> str:
    return entity("hub")


@pytest.fixture
def partitions(broker: RunningBroker, hub: str) -> ReadPartitions:
    """Return the events of each partition, as messages."""

    def events_of(partition: Partition) -> list[Message]:
        found: list[Message] = []
        while (each := partition.event(len(found))) is not None:
            found.append(Message.received(each.encode(), Origin("west", hub, partition.partition_id)))
        return found

    return lambda: broker.inspect("hubs", lambda hubs: [events_of(each) for each in hubs.hubs[hub].partitions])


def message_id(event: Message) -> str:
    assert event.message_id is not None
    return str(event.message_id.payload)


def ids(events: list[Message]) -> list[str]:
    return [message_id(each) for each in events]


@pytest.fixture
def faults(broker: RunningBroker) -> Iterator[NamespaceFaults]:
    yield broker.faults("hubs")
    broker.faults("hubs").clear()


def on_sending(hub: str, effect: Effect, containing: str, condition: str = BUSY) -> Fault:
    """Return a fault of the batches to *hub* that contain a text."""
    operations = frozenset((Operation.SEND,))
    return Fault(effect=effect, entity=hub, operations=operations, containing=containing, condition=condition)


@pytest.fixture
def links(faults: NamespaceFaults, hub: str) -> Callable[[], object]:
    """Return the number of links that were opened to the hub."""
    # A fault counts the operations that it has seen; this one never strikes.
    faults.add(Fault(effect=Effect.DISABLE, entity=hub, operations=frozenset((Operation.ATTACH,)), at=1_000_000))
    return lambda: faults.plain()[0]["seen"]


def test_events_keep_their_bytes_and_get_the_key_of_their_batch(
    west: str, hub: str, partitions: ReadPartitions
) -> None:
    sent = event(1, key="k", named={"photo": binary(b"\x00\xff")}, body=b"\xff\x00")
    assert to_hub(west, hub, [sent]) == [[None]]
    ((arrived,),) = [partition for partition in partitions() if partition]
    assert arrived.partition_key == "k"
    assert arrived.body == b"\xff\x00"
    assert arrived.application_property("photo") == binary(b"\x00\xff")


def test_events_of_a_key_share_a_partition_and_keep_their_order(
    west: str, hub: str, partitions: ReadPartitions, links: Callable[[], object]
) -> None:
    keys = [f"customer {number}" for number in range(30)]
    batches = [
        [event(f"{key}-{number}", key=key) for number in range(start, start + 3) for key in keys] for start in (0, 3)
    ]
    assert to_hub(west, hub, *batches) == [[None] * 90] * 2
    found: dict[str | None, list[tuple[int, str]]] = {}
    for number, events in enumerate(partitions()):
        for each in events:
            found.setdefault(each.partition_key, []).append((number, message_id(each)))
    assert set(found) == set(keys)
    for key, arrived in found.items():
        assert [identity for _, identity in arrived] == [f"e-{key}-{number}" for number in range(6)]
        assert len({number for number, _ in arrived}) == 1
    assert links() == 1, "one link for all keys and both calls"


def test_a_named_partition_takes_events_of_all_keys_in_their_order(
    west: str, hub: str, partitions: ReadPartitions
) -> None:
    batch = [event(number, key=f"k{number % 3}", partition="2") for number in range(50)]
    assert to_hub(west, hub, batch, [event(50, partition="2"), event(51, partition="0")]) == [
        [None] * 50,
        [None] * 2,
    ]
    first, second, third, fourth = partitions()
    assert ids(third) == [f"e-{number}" for number in range(51)]
    assert [message.partition_key for message in third[:4]] == ["k0", "k1", "k2", "k0"]
    assert (ids(first), second, fourth) == (["e-51"], [], [])


def test_a_call_of_more_than_the_link_takes_goes_in_several_batches(
    west: str, hub: str, partitions: ReadPartitions
) -> None:
    batch = [event(number, key="k", body=b"x" * 300_000) for number in range(8)]
    assert to_hub(west, hub, batch) == [[None] * 8]
    ((arrived),) = [partition for partition in partitions() if partition]
    assert ids(arrived) == [f"e-{number}" for number in range(8)]


def test_an_event_over_the_limit_is_rejected_alone(west: str, hub: str, partitions: ReadPartitions) -> None:
    (answers,) = to_hub(west, hub, [event(0, key="k"), event(1, key="k", body=b"x" * 1_100_000), event(2, key="k")])
    assert [type(answer) for answer in answers] == [type(None), MessageRejected, type(None)]
    assert isinstance(answers[1], MessageRejected)
    assert answers[1].reason == "MessageSizeExceeded"
    assert f"west/{hub}: the event has 11000" in str(answers[1])
    ((arrived),) = [partition for partition in partitions() if partition]
    assert ids(arrived) == ["e-0", "e-2"]


def test_refused_events_are_found_by_halving_and_the_others_keep_their_order(
    west: str, hub: str, partitions: ReadPartitions, faults: NamespaceFaults, links: Callable[[], object]
) -> None:
    faults.add(on_sending(hub, Effect.REFUSE, "poison", NOT_ALLOWED))
    poison = {3, 4, 17}
    batch = [event(n, key=f"k{n % 2}", body=b"poison" if n in poison else b"good") for n in range(20)]
    (answers,) = to_hub(west, hub, batch)
    assert {n for n, answer in enumerate(answers) if isinstance(answer, MessageRejected)} == poison
    assert [answer for answer in answers if not isinstance(answer, MessageRejected)] == [None] * 17
    arrived = {identity for events in partitions() for identity in ids(events)}
    assert arrived == {f"e-{n}" for n in range(20) if n not in poison}
    for events in partitions():
        for key in ("k0", "k1"):
            numbers = [int(message_id(each)[2:]) for each in events if each.partition_key == key]
            assert numbers == sorted(numbers)
    assert links() == 1, "a refusal does not reopen the link"


def test_a_key_that_has_to_wait_holds_back_only_itself(
    west: str, hub: str, partitions: ReadPartitions, faults: NamespaceFaults, links: Callable[[], object]
) -> None:
    faults.add(on_sending(hub, Effect.REFUSE, "slow"))
    batch = [event(f"{key}-{n}", key=key, body=b"x" * 300_000) for n in range(4) for key in ("slow", "fast")]
    (answers,) = to_hub(west, hub, batch)
    answers_by_key = {(type(answer), message.partition_key) for answer, message in zip(answers, batch, strict=True)}
    assert answers_by_key == {(TargetUnavailable, "slow"), (type(None), "fast")}
    assert isinstance(answers[0], TargetUnavailable)
    assert answers[0].retry_after is not None
    assert [identity for events in partitions() for identity in ids(events)] == [f"e-fast-{n}" for n in range(4)]
    assert links() == 1


def test_a_batch_for_which_the_hub_closes_the_link_is_found_among_several(
    west: str, hub: str, partitions: ReadPartitions, faults: NamespaceFaults
) -> None:
    faults.add(on_sending(hub, Effect.CLOSE_LINK, "poison", MESSAGE_SIZE_EXCEEDED))
    batch = [event(n, key=f"k{n % 3}", body=b"poison" if n == 4 else b"good") for n in range(9)]

    (answers,) = to_hub(west, hub, batch)
    assert [number for number, answer in enumerate(answers) if answer is not None] == [4]
    assert isinstance(answers[4], MessageRejected)
    found = [identity for events in partitions() for identity in ids(events)]
    assert sorted(set(found)) == [f"e-{n}" for n in range(9) if n != 4]


def test_calls_share_the_round_trip_and_keep_the_order_of_their_keys(
    west: str, hub: str, partitions: ReadPartitions, faults: NamespaceFaults, links: Callable[[], object]
) -> None:
    faults.add(Fault(effect=Effect.DELAY, entity=hub, operations=frozenset((Operation.SEND,)), delay=0.2))

    async def send() -> float:
        async def of_key(key: str) -> None:
            for number in range(3):
                assert await output.send(hub, [event(f"{key}-{number}", key=key)], timeout_seconds=SECONDS) == [None]

        async with closing(event_hubs(west)) as output:
            started = time.monotonic()
            await asyncio.gather(*map(of_key, "abcdefgh"))
            return time.monotonic() - started

    assert asyncio.run(send()) < 24 * 0.2 / 2  # one after the other would take 24 delays
    assert links() == 8
    found = [identity for events in partitions() for identity in ids(events)]
    assert len(found) == 24
    for key in "abcdefgh":
        assert [each for each in found if f"-{key}-" in each] == [f"e-{key}-{number}" for number in range(3)]


def test_more_calls_than_links_wait_for_their_turn_within_their_time(
    west: str, hub: str, faults: NamespaceFaults, links: Callable[[], object]
) -> None:
    faults.add(Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity=hub, operations=frozenset((Operation.SEND,))))

    async def send() -> list[list[BuswayError | None]]:
        async with closing(event_hubs(west)) as output:
            calls = (output.send(hub, [event(number)], timeout_seconds=3) for number in range(CALLS_AT_ONCE + 4))
            return await asyncio.gather(*calls)

    answers = asyncio.run(send())
    assert [type(answer) for (answer,) in answers] == [TargetUnavailable] * (CALLS_AT_ONCE + 4)
    # On a busy machine some are not opened within the time.
    assert links() in range(1, CALLS_AT_ONCE + 1)


@pytest.mark.parametrize(("place", "partition"), [("nowhere", None), (None, "7")])
def test_a_missing_hub_or_partition_is_refused(west: str, hub: str, place: str | None, partition: str | None) -> None:
    (answers,) = to_hub(west, place or hub, [event(0, partition=partition), event(1, partition=partition)])
    assert [type(answer) for answer in answers] == [TargetRefused] * 2
    assert str(answers[0]).startswith("west/nowhere:" if place else f"west/{hub}/Partitions/7:")


def test_a_partition_that_does_not_exist_stops_no_other(west: str, hub: str) -> None:
    (answers,) = to_hub(west, hub, [event(0, partition="7"), event(1, partition="1"), event(2)])
    assert [type(answer) for answer in answers] == [TargetRefused, type(None), type(None)]


def test_a_target_that_is_not_there_is_unavailable_within_the_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    nobody = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    (answers,) = to_hub(nobody, "h", [event(0), event(1)], seconds=3)
    assert [type(answer) for answer in answers] == [TargetUnavailable] * 2


def test_a_hub_that_does_not_answer_is_unavailable_within_the_time_and_keeps_what_it_took(
    west: str, hub: str, faults: NamespaceFaults
) -> None:
    faults.add(on_sending(hub, Effect.LOSE_ACKNOWLEDGEMENT, "slow"))
    (answers,) = to_hub(west, hub, [event(0, key="fast"), event(1, key="slow")], seconds=1)
    assert [type(answer) for answer in answers] == [type(None), TargetUnavailable]


def test_a_send_that_was_cut_short_leaves_no_half_read_link(
    west: str, hub: str, partitions: ReadPartitions, faults: NamespaceFaults
) -> None:
    faults.add(on_sending(hub, Effect.LOSE_ACKNOWLEDGEMENT, "slow"))

    async def cut_short() -> None:
        async with closing(event_hubs(west)) as output:
            assert await output.send(hub, [event(0)], timeout_seconds=SECONDS) == [None]
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await output.send(hub, [event(1, key="slow")], timeout_seconds=SECONDS)
            assert await output.send(hub, [event(2)], timeout_seconds=SECONDS) == [None]

    asyncio.run(cut_short())
    # The event of the call that was cut short may have arrived.
    arrived = {identity for events in partitions() for identity in ids(events)}
    assert arrived - {"e-1"} == {"e-0", "e-2"}


def test_an_output_recovers_after_an_outage_of_the_broker() -> None:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    config = NamespaceConfig(name="alone", hubs=(HubConfig(name="h"),), port=port)

    async def send(output: EventHubsOutput, number: int) -> list[BuswayError | None]:
        return await output.send("h", [event(number)], timeout_seconds=5)

    loop = asyncio.new_event_loop()
    try:
        with RunningBroker([config]) as broker:
            output = event_hubs(broker.connection_string("alone"))
            assert loop.run_until_complete(send(output, 0)) == [None]
        (answer,) = loop.run_until_complete(send(output, 1))
        assert isinstance(answer, TargetUnavailable)
        with RunningBroker([config]) as broker:
            attempts = [loop.run_until_complete(send(output, 2))[0] for _ in range(2)]
            assert attempts[-1] is None
            loop.run_until_complete(output.close())
    finally:
        loop.close()


def test_a_setting_that_names_one_hub_serves_that_hub_only() -> None:
    settings = {"WEST": "Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey=secret;EntityPath=Telemetry"}
    assert SETTING_FORM.problem("WEST", settings, ["telemetry"]) is None
    with pytest.raises(ConfigError, match="names one entity, Telemetry, expected jobs"):
        event_hub_client("WEST", settings, "jobs")
    for hubs in ([], ["telemetry", "jobs"]):
        problem = SETTING_FORM.problem("WEST", settings, hubs)
        assert problem is not None
        assert problem.hint == "remove EntityPath"
