"""Targets of kind amqp at Artemis, ActiveMQ and RabbitMQ 3 and 4: what arrives, and what happens when they fail."""

import asyncio
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from urllib.parse import quote

import pytest
from azure.servicebus import ServiceBusClient, parse_connection_string

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.amqp.values import binary
from shared.ends.amqp.endpoint import amqp_endpoint
from shared.ends.amqp.output import AmqpOutput
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.message.message import Message
from shared.protocols import Outgoing
from tests.faults.conservation import Copy
from tests.messages import ORIGIN, delivered
from tests.other_brokers.activemq import ActiveMQ, Artemis
from tests.other_brokers.fidelity import ROWS, kept, page_table, specimen
from tests.other_brokers.processes import ROOT, OtherBroker
from tests.other_brokers.rabbitmq import RabbitMQ3, RabbitMQ4
from tests.other_brokers.reading import read_all

pytestmark = pytest.mark.slow

_SECONDS = 10.0
_EMPTY_FOOTER = b"\x00\x53\x78\xc1\x01\x00"


@pytest.fixture(scope="module", params=[Artemis, ActiveMQ, RabbitMQ3, RabbitMQ4], ids=lambda kind: kind.__name__)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherBroker]:
    missing = request.param.missing()
    if missing is not None:
        pytest.skip(missing)
    broker: OtherBroker = request.param(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def queue(other: OtherBroker) -> str:
    return other.queue()


def opened(other: OtherBroker, queue: str) -> AmqpOutput:
    return AmqpOutput("there", amqp_endpoint(other.url), {queue: "queue"})


def outgoing(number: int, session_id: str | None = None, body: bytes = b"body") -> Outgoing:
    message = Message.received(delivered(None, message_id=f"m-{number}", session_id=session_id, body=body), ORIGIN)
    return Outgoing(message.encode(), f"m-{number}", session_id, None)


def sent(
    other: OtherBroker, queue: str, messages: Sequence[Outgoing], seconds: float = _SECONDS
) -> list[BuswayError | None]:
    async def send() -> list[BuswayError | None]:
        output = opened(other, queue)
        try:
            return await output.send(queue, messages, timeout_seconds=seconds)
        finally:
            await output.close()

    return asyncio.run(send())


def copies(contents: Sequence[bytes]) -> list[Copy]:
    read = [Message.received(content, ORIGIN) for content in contents]
    ids = [message.message_id.payload if message.message_id is not None else None for message in read]
    return [Copy(message.session_id or "", str(name)) for message, name in zip(read, ids, strict=True)]


def test_messages_arrive_once_and_in_order(other: OtherBroker, queue: str) -> None:
    messages = [outgoing(number, f"s{number % 7}") for number in range(400)] + [outgoing(400, body=b"x" * 300_000)]
    assert sent(other, queue, messages) == [None] * 401
    arrived = copies(asyncio.run(read_all(other.url, queue)))
    assert len(arrived) == 401
    for session in {copy.key for copy in arrived}:
        numbers = [int(copy.name.removeprefix("m-")) for copy in arrived if copy.key == session]
        assert numbers == sorted(numbers)


def found_at(url: str, queue: str) -> dict[str, str]:
    """Return what happens to each part of a message."""

    async def run() -> dict[str, str]:
        found = {}
        output = AmqpOutput("there", amqp_endpoint(url), {queue: "queue"})
        for name in ROWS:
            content = specimen(name)
            [answer] = await output.send(queue, [Outgoing(content, "m", None, None)], timeout_seconds=_SECONDS)
            read = await read_all(url, queue, most=1) if answer is None else []
            found[name] = kept(name, content, read)
        await output.close()
        return found

    return asyncio.run(run())


def test_the_page_says_what_arrives_of_a_message(other: OtherBroker, queue: str) -> None:
    assert found_at(other.url, queue) == page_table()[type(other).__name__]


def test_a_kill_in_the_middle_loses_nothing_and_keeps_the_order_of_sessions(other: OtherBroker, queue: str) -> None:
    messages = [outgoing(number, f"s{number % 20}") for number in range(1_000)]
    errors: list[BuswayError] = []

    async def send() -> None:
        output, waiting, accepted = opened(other, queue), messages, 0
        killed: asyncio.Future[None] | None = None
        loop = asyncio.get_running_loop()
        while waiting:
            if accepted >= 200 and killed is None:
                killed = loop.run_in_executor(None, restart)
            answers = await output.send(queue, waiting[:200], timeout_seconds=_SECONDS)
            errors.extend({str(answer): answer for answer in answers if answer is not None}.values())
            left = [message for message, answer in zip(waiting, answers, strict=False) if answer is not None]
            accepted += len(answers) - len(left)
            waiting = left + waiting[200:]
            if left:
                await asyncio.sleep(0.2)
        assert killed is not None
        await killed
        await output.close()

    def restart() -> None:
        other.kill()
        other.start()

    async def all_within() -> None:
        async with asyncio.timeout(120):
            await send()

    asyncio.run(all_within())
    assert errors
    assert {type(error) for error in errors} == {TargetUnavailable}
    arrived = copies(asyncio.run(read_all(other.url, queue)))
    first = list(dict.fromkeys(arrived))
    assert {copy.name for copy in first} == {message.message_id for message in messages}
    for session in {copy.key for copy in first}:
        numbers = [int(copy.name.removeprefix("m-")) for copy in first if copy.key == session]
        assert numbers == sorted(numbers)
    # Only what was in flight, one message of each session, may be there twice.
    assert len(arrived) - len(first) <= 20


async def sent_in_attempts(
    output: AmqpOutput, queue: str, messages: Sequence[Outgoing]
) -> tuple[list[Outgoing], list[BuswayError]]:
    """Send until each message is accepted or rejected; return the rejected messages, and all errors."""
    rejected, errors = list[Outgoing](), list[BuswayError]()
    async with asyncio.timeout(120):
        while messages:
            answers = await output.send(queue, messages, timeout_seconds=_SECONDS)
            found = list(zip(messages, answers, strict=True))
            rejected += [message for message, answer in found if isinstance(answer, MessageRejected)]
            errors += [answer for _, answer in found if answer is not None]
            messages = [message for message, answer in found if isinstance(answer, TargetUnavailable | TargetRefused)]
            await asyncio.sleep(0.2 if messages else 0)
    await output.close()
    return rejected, errors


def test_a_message_that_makes_rabbitmq_close_the_connection_is_rejected_alone(other: OtherBroker, queue: str) -> None:
    if not isinstance(other, RabbitMQ3):
        pytest.skip("others accept such messages")
    bad = [Outgoing(specimen("property: described") + footer, None, None, None) for footer in (b"", _EMPTY_FOOTER)]
    good = [outgoing(number, f"s{number % 3}" if number % 2 else None) for number in range(30)]
    messages = [*good[:10], bad[0], *good[10:20], bad[1], *good[20:]]
    rejected, errors = asyncio.run(sent_in_attempts(opened(other, queue), queue, messages))
    assert rejected == bad
    reason = "amqp:internal-error" if isinstance(other, RabbitMQ4) else "without a reason"
    assert f"closes the connection because of it, {reason}: 3 times" in str(errors)
    arrived = copies(asyncio.run(read_all(other.url, queue)))
    assert {copy.name for copy in arrived} == {message.message_id for message in good}
    # The first two breaks leave those in flight unknown for each of the two messages.
    assert all(count <= 5 for count in Counter(arrived).values())


def test_a_message_with_the_user_id_of_somebody_else_is_rejected_alone_by_rabbitmq(
    other: OtherBroker, queue: str
) -> None:
    if not isinstance(other, RabbitMQ3):
        pytest.skip("others keep any user id")
    bad = Outgoing(delivered(None, message_id="bad", user_id=binary(b"somebody")), "bad", None, None)
    good = [outgoing(number, f"s{number % 3}" if number % 2 else None) for number in range(20)]
    rejected, _ = asyncio.run(sent_in_attempts(opened(other, queue), queue, [*good[:10], bad, *good[10:]]))
    assert rejected == [bad]
    arrived = copies(asyncio.run(read_all(other.url, queue)))
    assert {copy.name for copy in arrived} == {message.message_id for message in good}


def test_connections_that_rabbitmq_closes_and_restarts_reject_nothing(other: OtherBroker, queue: str) -> None:
    if not isinstance(other, RabbitMQ3):
        pytest.skip("others have no such command")
    messages = [outgoing(number) for number in range(20)]

    async def send() -> tuple[int, list[BuswayError]]:
        output, errors, accepted = opened(other, queue), list[BuswayError](), 0
        disturbed = asyncio.create_task(asyncio.to_thread(disturb))
        while not disturbed.done():  # one message in flight at a time
            [answer] = await output.send(queue, [messages[accepted % 20]], timeout_seconds=_SECONDS)
            if answer is None:
                accepted += 1
            else:
                errors.append(answer)
                await asyncio.sleep(0.05)
        await disturbed
        await output.close()
        return accepted, errors

    def disturb() -> None:
        for _ in range(5):
            other.control("close_all_connections", "maintenance")
        for _ in range(2):
            other.control("stop_app")
            other.control("start_app")

    accepted, errors = asyncio.run(send())
    assert accepted
    assert errors
    assert {type(error) for error in errors} == {TargetUnavailable}


def test_a_full_queue_holds_the_batch_until_it_is_read(other: OtherBroker) -> None:
    queue = other.address("full.orders")
    messages = [outgoing(number, "s", b"x" * 1_000) for number in range(60)]
    waiting, arrived = messages, []
    for _ in range(20):
        answers = sent(other, queue, waiting, seconds=2.0)
        waiting = [message for message, answer in zip(waiting, answers, strict=True) if answer is not None]
        assert {type(answer) for answer in answers if answer is not None} <= {TargetUnavailable}
        arrived += asyncio.run(read_all(other.url, queue, quiet=0.3))
        if not waiting:
            break
    # ActiveMQ stores late what it has not answered in time, so that a message may arrive twice.
    assert list(dict.fromkeys(copy.name for copy in copies(arrived))) == [message.message_id for message in messages]
    assert len(arrived) == 60 or isinstance(other, ActiveMQ)


def test_a_missing_address_is_refused(other: OtherBroker) -> None:
    if isinstance(other, ActiveMQ):
        pytest.skip("ActiveMQ creates every queue")
    missing = {"Artemis": "strict.nothing", "RabbitMQ3": "/exchange/nothing/key", "RabbitMQ4": "/queues/nothing"}
    [answer] = sent(other, missing[type(other).__name__], [outgoing(0)])
    assert isinstance(answer, TargetRefused)
    assert "it does not exist" in str(answer)


def test_wrong_credentials_are_refused(other: OtherBroker, queue: str) -> None:
    wrong = [other.url.replace("s3cret", "other")]
    if isinstance(other, ActiveMQ):  # its user that may only read
        wrong.append(f"amqp://reader:reader@127.0.0.1:{other.port}")
    for url in wrong:
        output = AmqpOutput("there", amqp_endpoint(url), {})
        [answer] = asyncio.run(output.send(queue, [outgoing(0)], timeout_seconds=_SECONDS))
        assert isinstance(answer, TargetRefused)
        assert "Busway may not send to it" in str(answer)


def test_a_broker_that_rejects_because_its_queue_is_full_refuses(other: OtherBroker) -> None:
    if not isinstance(other, Artemis):
        pytest.skip("others have no such setting")
    answers = sent(other, "failing.orders", [outgoing(number, "s", b"x" * 1_000) for number in range(60)])
    assert isinstance(answers[-1], TargetRefused)
    assert "its quota is exceeded" in str(answers[-1])


def test_the_shovel_of_the_page_moves_a_queue_to_service_bus(other: OtherBroker, queue: str) -> None:
    if not isinstance(other, RabbitMQ3):
        pytest.skip("only RabbitMQ has shovels")
    assert sent(other, queue, [outgoing(number) for number in range(50)]) == [None] * 50
    [printed] = re.findall(r"<!-- shovel -->\n```sh\n(.*?)```", (ROOT / "docs/amqp.md").read_text(), re.DOTALL)
    set_parameter, status = (shlex.split(line)[1:] for line in printed.splitlines())
    with RunningBroker([NamespaceConfig(name="west", queues=(QueueConfig(name="orders"),))]) as west:
        connection_string = west.connection_string("west")
        key = parse_connection_string(connection_string)
        password = quote(str(key.shared_access_key), safe="")
        option = json.loads(set_parameter.pop())
        option["src-uri"], option["src-queue"] = other.url, queue.rpartition("/")[2]
        option["dest-uri"] = f"amqp://{key.shared_access_key_name}:{password}@127.0.0.1:{west.port('west')}?sasl=plain"
        other.control(*set_parameter, json.dumps(option))
        try:
            with (
                ServiceBusClient.from_connection_string(connection_string) as client,
                client.get_queue_receiver("orders") as receiver,
            ):
                bodies = [b"".join(message.body) for _, message in zip(range(50), receiver, strict=False)]
            assert bodies == [b"body"] * 50
            assert "running" in other.control(*status)
        finally:
            other.control("clear_parameter", "shovel", set_parameter[2])
