"""What waits in the entities of the local broker, by peek and by the administration API."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, Right, SharedAccessKey, SubscriptionConfig
from busway_broker.config import TopicConfig as Topic
from busway_broker.thread import RunningBroker
from shared.ends.event_hubs.clients import producer_of
from shared.ends.event_hubs.site import HubSite
from shared.ends.namespace import Namespace
from shared.ends.service_bus.administration import administration_opener
from shared.ends.service_bus.clients import client_of
from shared.ends.service_bus.site import MOST_PEEKED, ServiceBusSite
from shared.errors import TargetRefused, TargetUnavailable
from shared.message.waiting import DEAD_LETTERS, TopicDeadLetters, Waiting
from tests.wire.sending import closing

KEYS = (SharedAccessKey(name="sender", key="c2VuZA==", rights=frozenset((Right.SEND,))),)
WEST = NamespaceConfig(
    name="west",
    counts_lag=timedelta(),
    queues=(
        QueueConfig(name="plain"),
        QueueConfig(name="sessions", requires_session=True),
        QueueConfig(name="many"),
        QueueConfig(name="large"),
        QueueConfig(name="nothing"),
    ),
    topics=(Topic(name="events", subscriptions=(SubscriptionConfig(name="a"), SubscriptionConfig(name="b"))),),
)
LOCKED = NamespaceConfig(name="locked", queues=(QueueConfig(name="plain"),), shared_access_keys=KEYS)
HUBS = NamespaceConfig(name="hubs", hubs=(HubConfig(name="telemetry", partition_count=2),))


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([WEST, LOCKED, HUBS]) as running:
        with ServiceBusClient.from_connection_string(running.connection_string("west")) as west:
            with west.get_queue_sender("plain") as sender:
                sender.send_messages([ServiceBusMessage(f"{number}") for number in range(7)])
            with west.get_queue_receiver("plain") as receiver:
                dead, deferred, *_ = _receive(receiver.receive_messages, 5)
                receiver.dead_letter_message(dead)
                receiver.defer_message(deferred)
            with west.get_queue_sender("sessions") as sender:
                sender.send_messages([ServiceBusMessage("x", session_id=f"{number % 3}") for number in range(5)])
            with west.get_queue_sender("many") as sender:
                for _ in range(MOST_PEEKED // 100 + 1):
                    sender.send_messages([ServiceBusMessage("x") for _ in range(100)])
            with west.get_queue_sender("large") as sender:
                for _ in range(22):
                    sender.send_messages(ServiceBusMessage(b"x" * 200_000))
            with west.get_topic_sender("events") as sender:
                sender.send_messages([ServiceBusMessage("x") for _ in range(2)])
            for name in ("a", "b"):
                with west.get_subscription_receiver("events", name) as receiver:
                    for message in _receive(receiver.receive_messages, 2):
                        receiver.dead_letter_message(message)
        yield running


def _receive(receive: Callable[..., list[ServiceBusReceivedMessage]], count: int) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    while len(found) < count:
        found += receive(count - len(found), max_wait_time=5)
    return found


def site_at(
    address: str, administration: Any = None, *, name: str = "west", most: int | None = None
) -> AbstractAsyncContextManager[ServiceBusSite]:
    """Open a site with or without its *administration*."""
    return closing(ServiceBusSite(name, lambda: client_of(Namespace(name, address)), administration, most_peeked=most))


def administration_of(admin: RunningAdmin, name: str) -> Callable[[], ServiceBusAdministrationClient]:
    return lambda: ServiceBusAdministrationClient.from_connection_string(
        admin.connection_string(name), connection_verify=str(admin.authority)
    )


def look(
    broker: RunningBroker, *entities: str, name: str = "west", most: int | None = None, administration: Any = None
) -> list[Waiting | Exception]:
    async def run() -> list[Waiting | Exception]:
        async with site_at(broker.connection_string(name), administration, name=name, most=most) as site:
            found = await asyncio.gather(*map(site.waiting, entities), return_exceptions=True)
        return [each if isinstance(each, Exception | Waiting) else AssertionError(each) for each in found]

    return asyncio.run(run())


def test_a_peek_counts_locked_messages_and_no_deferred_or_dead_ones(broker: RunningBroker) -> None:
    plain, dead, sessions, empty = look(broker, "plain", f"plain{DEAD_LETTERS}", "sessions", "events/Subscriptions/a")
    for found, messages in ((plain, 5), (dead, 1), (sessions, 5)):
        assert isinstance(found, Waiting)
        assert (found.messages, found.is_minimum) == (messages, False)
        assert found.oldest is not None
    assert empty == Waiting(0)


def test_a_peek_ends_at_its_limit_and_says_so(broker: RunningBroker) -> None:
    (many,) = look(broker, "many")
    assert isinstance(many, Waiting)
    # As many as the answer brought with which it had enough.
    assert MOST_PEEKED <= many.messages < MOST_PEEKED + 250
    assert many.is_minimum


def test_what_may_not_be_seen_or_does_not_exist_is_refused_with_the_reason(broker: RunningBroker) -> None:
    for path in ("nowhere", "events/Subscriptions/nowhere"):
        (missing,) = look(broker, path)
        assert isinstance(missing, TargetRefused)
        assert f"west/{path}: it does not exist" in str(missing)
    (locked,) = look(broker, "plain", name="locked")
    assert isinstance(locked, TargetRefused)
    assert "permission" in str(locked)
    assert "c2VuZA" not in str(locked)


def test_a_peek_counts_as_many_as_it_may_and_as_fit_into_memory(broker: RunningBroker) -> None:
    many, large = look(broker, "many", "large", most=100)
    assert isinstance(many, Waiting)
    assert (many.messages, many.is_minimum) == (100, True)
    assert isinstance(large, Waiting)
    assert 0 < large.messages <= 22
    assert large.is_minimum, "4 MiB are enough"


def test_two_looks_at_one_entity_at_the_same_time_do_not_disturb_each_other(broker: RunningBroker) -> None:
    first, second = look(broker, "sessions", "sessions")
    assert isinstance(first, Waiting)
    assert first == second


def test_the_administration_api_counts_any_number_and_the_subscriptions_of_a_topic(
    broker: RunningBroker, tmp_path: Path
) -> None:
    async def run() -> list[object]:
        async with site_at(broker.connection_string("west"), administration_of(admin, "west")) as site:
            many = await site.waiting("many")
            assert many.oldest is not None
            return [many.messages, many.is_minimum, await site.topic_dead_letters("events"), site.without_counts]

    with RunningAdmin(broker, tmp_path) as admin:
        assert asyncio.run(run()) == [MOST_PEEKED + 100, False, TopicDeadLetters({"a": 2, "b": 2}), None]


class Lagging:
    """The administration after a while in which its counts went wrong (Azure/azure-service-bus issue 653)."""

    async def get_queue_runtime_properties(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(active_message_count=-3, dead_letter_message_count=-1)

    async def list_subscriptions_runtime_properties(self, _: str) -> AsyncIterator[SimpleNamespace]:
        for name, count in (("a", -2), ("b", 1), ("c", None)):
            yield SimpleNamespace(name=name, dead_letter_message_count=count)

    async def close(self) -> None:
        pass


def test_a_negative_count_of_a_subscription_is_none(broker: RunningBroker) -> None:
    async def run() -> object:
        async with site_at(broker.connection_string("west"), Lagging) as site:
            return await site.topic_dead_letters("events")

    assert asyncio.run(run()) == TopicDeadLetters({"a": 0, "b": 1, "c": 0})


def test_a_negative_count_is_not_believed_and_the_messages_are_peeked(broker: RunningBroker) -> None:
    found = look(broker, "plain", f"plain{DEAD_LETTERS}", "nothing", administration=Lagging)
    assert [each.messages for each in found if isinstance(each, Waiting)] == [5, 1, 0]


def test_without_the_right_to_manage_messages_are_peeked(broker: RunningBroker, tmp_path: Path) -> None:
    async def run() -> None:
        async with site_at(broker.connection_string("west"), administration_of(admin, "locked")) as site:
            assert (await site.waiting("sessions")).messages == 5
            with pytest.raises(TargetRefused, match=r"it needs the right to manage$"):
                await site.topic_dead_letters("events")
            assert site.without_counts == "it needs the right to manage"

    with RunningAdmin(broker, tmp_path) as admin:
        asyncio.run(run())


def test_the_partitions_of_a_hub_report_their_ends(broker: RunningBroker) -> None:
    namespace = Namespace("hubs", broker.connection_string("hubs"))

    async def run() -> None:
        async with closing(HubSite("hubs", lambda hub: producer_of(namespace, hub))) as hubs:
            found = await hubs.partitions("telemetry")
            assert {name: (end.is_empty, end.last) for name, end in found.items()} == {"0": (True, -1), "1": (True, -1)}
            with pytest.raises(TargetRefused, match="hubs/nowhere: it does not exist"):
                await hubs.partitions("nowhere")

    asyncio.run(run())


def test_a_namespace_that_does_not_answer_is_unavailable() -> None:
    async def run() -> None:
        string = "Endpoint=sb://localhost:9;SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
        async with site_at(string) as site:
            with pytest.raises(TargetUnavailable, match="west/plain: does not answer"):
                await site.waiting("plain")

    asyncio.run(run())


def test_an_emulator_has_no_administration_at_its_address() -> None:
    string = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=b"
    assert administration_opener("WEST", {"WEST": f"{string};UseDevelopmentEmulator=true"}) is None
    assert administration_opener("WEST", {"WEST": string}) is not None


def test_a_setting_names_the_administration_of_an_emulator(broker: RunningBroker) -> None:
    with RunningAdmin(broker) as admin:
        string = broker.connection_string("west") + ";UseDevelopmentEmulator=true"
        address = admin.address("west")
        dead, reason = asyncio.run(administered(string, address))
        assert (dead, reason) == (TopicDeadLetters({"a": 2, "b": 2}), None)
    dead, reason = asyncio.run(administered(string, address))
    assert isinstance(dead, TargetRefused), "the namespace itself may answer"
    assert reason is not None
    assert "does not answer" in str(dead)


async def administered(string: str, address: str) -> tuple[object, str | None]:
    """Return the dead letters of a topic, or the error, and why they cannot be counted."""
    opener = administration_opener("WEST", {"WEST": string, "WEST__administration": address})
    async with site_at(string, opener) as site:
        try:
            return await site.topic_dead_letters("events"), site.without_counts
        except TargetRefused as error:
            return error, site.without_counts
