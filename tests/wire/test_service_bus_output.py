"""The output for Service Bus against a broker that its SDK talks to."""

import asyncio
import datetime as dt
import socket
from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusReceivedMessage

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.faults import Effect, Fault
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import BuswayError, ConfigError, MessageRejected, TargetRefused, TargetUnavailable
from tests.wire.sending import SECONDS, closing, outgoing, service_bus, to_bus


def nobody_at(port: int) -> str:
    return f"Endpoint=sb://localhost:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@pytest.fixture
def west(broker: RunningBroker) -> str:
    return broker.connection_string("west")


def ids(messages: list[ServiceBusReceivedMessage]) -> list[str | None]:
    return [message.message_id for message in messages]


def test_batches_arrive_in_order_as_they_are(
    west: str, entity: Callable[[str], str], take: Callable[..., list[ServiceBusReceivedMessage]]
) -> None:
    queue = entity("plain")
    batches = [[outgoing(number) for number in range(start, start + 40)] for start in (0, 40)]
    assert to_bus(west, queue, *batches) == [[None] * 40] * 2
    messages = take(queue, 80)
    assert ids(messages) == [f"m-{number}" for number in range(80)]
    assert {b"".join(message.body) for message in messages} == {b"body"}


@pytest.mark.parametrize("passed", [(601,), (601, 301)], ids=["link", "connection"])
def test_a_link_that_ended_while_it_was_idle_is_opened_again_and_counts_as_no_outage(passed: tuple[int, ...]) -> None:
    # SR37, SR38
    namespace = NamespaceConfig(name="n", queues=(QueueConfig(name="q"),))
    with RunningBroker([namespace], ManualClock(dt.datetime.now(dt.UTC))) as broker:

        async def send() -> None:
            async with closing(service_bus(broker.connection_string("n"))) as output:
                assert await output.send("q", [outgoing(0)], timeout_seconds=SECONDS) == [None]
                for seconds in passed:
                    await asyncio.to_thread(broker.advance, seconds)
                await asyncio.sleep(0.3)  # a link is looked at when it was quiet for a while
                assert await output.send("q", [outgoing(1), outgoing(2)], timeout_seconds=SECONDS) == [None, None]

        asyncio.run(send())
        assert broker.counts("n")["q"].active == 3


@pytest.mark.parametrize(
    ("description", "error"),
    [
        (
            "Code: RenewToken. Details: Unauthorized access. 'Send' claim(s) are required to perform this operation.",
            TargetRefused,
        ),
        (
            "Code: publisher(link1). Details: InnerMessageSender was closed.",
            TargetUnavailable,
        ),
    ],
)
def test_the_text_of_a_forced_detach_says_whether_a_right_is_missing(
    description: str, error: type[BuswayError]
) -> None:
    # SR40: the condition is the same.
    namespace = NamespaceConfig(name="n", queues=(QueueConfig(name="q"),))
    with RunningBroker([namespace]) as broker:
        fault = Fault(effect=Effect.CLOSE_LINK, condition="amqp:link:detach-forced", description=description)
        broker.faults("n").add(fault)
        ((answer,),) = to_bus(broker.connection_string("n"), "q", [outgoing(0)])
    assert isinstance(answer, error)


def test_a_call_of_more_than_the_link_takes_goes_in_several_batches(
    west: str, entity: Callable[[str], str], take: Callable[..., list[ServiceBusReceivedMessage]]
) -> None:
    queue = entity("plain")
    batch = [outgoing(number, body=b"x" * 50_000) for number in range(12)]
    assert to_bus(west, queue, batch) == [[None] * 12]
    assert ids(take(queue, 12)) == [f"m-{number}" for number in range(12)]


def test_a_message_over_the_limit_is_rejected_alone(
    west: str, entity: Callable[[str], str], take: Callable[..., list[ServiceBusReceivedMessage]]
) -> None:
    queue = entity("plain")
    (answers,) = to_bus(west, queue, [outgoing(0), outgoing(1, body=b"x" * 300_000), outgoing(2)])
    assert [type(answer) for answer in answers] == [type(None), MessageRejected, type(None)]
    assert isinstance(answers[1], MessageRejected)
    assert answers[1].reason == "MessageSizeExceeded"
    assert ids(take(queue, 2)) == ["m-0", "m-2"]


@pytest.mark.parametrize("session_id", ["s", ""])
def test_messages_without_a_session_id_are_rejected_alone_and_the_others_keep_their_order(
    west: str, entity: Callable[[str], str], take: Callable[..., list[ServiceBusReceivedMessage]], session_id: str
) -> None:
    queue = entity("sessions")
    batch = [outgoing(number, session_id=None if number in (0, 7, 8, 19) else session_id) for number in range(20)]
    (answers,) = to_bus(west, queue, batch)
    refused = [number for number, answer in enumerate(answers) if isinstance(answer, MessageRejected)]
    assert refused == [0, 7, 8, 19]
    assert [answer for answer in answers if not isinstance(answer, MessageRejected)] == [None] * 16
    assert ids(take(queue, 16, session_id=session_id)) == [
        f"m-{number}" for number in range(20) if number not in refused
    ]


def test_a_missing_entity_is_refused(west: str) -> None:
    (answers,) = to_bus(west, "nowhere", [outgoing(0), outgoing(1)])
    assert [type(answer) for answer in answers] == [TargetRefused] * 2
    assert "west/nowhere" in str(answers[0])


def test_a_target_that_is_not_there_is_unavailable_within_the_time() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    (answers,) = to_bus(nobody_at(port), "q", [outgoing(0), outgoing(1)], seconds=3)
    assert [type(answer) for answer in answers] == [TargetUnavailable] * 2


def test_an_output_recovers_after_an_outage_of_the_broker() -> None:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    config = NamespaceConfig(name="alone", queues=(QueueConfig(name="q"),), port=port)

    async def send(output: ServiceBusOutput, number: int) -> list[BuswayError | None]:
        return await output.send("q", [outgoing(number)], timeout_seconds=5)

    loop = asyncio.new_event_loop()
    try:
        with RunningBroker([config]) as broker:
            output = service_bus(broker.connection_string("alone"))
            assert loop.run_until_complete(send(output, 0)) == [None]
        (answer,) = loop.run_until_complete(send(output, 1))
        assert isinstance(answer, TargetUnavailable)
        with RunningBroker([config]) as broker:
            attempts = [loop.run_until_complete(send(output, 2))[0] for _ in range(2)]
            assert attempts[-1] is None
            loop.run_until_complete(output.close())
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is missing"),
        ("", "is missing"),
        ("secret", "not a connection string"),
        ("Endpoint=sb://secret/", "not a connection string"),
        ("Endpoint=sb://a/;SharedAccessKeyName=n;SharedAccessKey=secret;EntityPath=q", "names one entity"),
    ],
)
def test_an_invalid_setting_is_reported_without_its_value(text: str | None, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        service_bus_client("WEST", {} if text is None else {"WEST": text})
    assert "secret" not in str(caught.value)
