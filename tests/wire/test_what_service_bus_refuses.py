"""The output for Service Bus at what the service refuses without saying why, or as a batch only."""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from shared.amqp.values import string
from shared.errors import MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from tests.wire.sending import SECONDS, Answers, closing, outgoing, service_bus, to_bus

_QUEUES = (
    QueueConfig(name="q"),
    QueueConfig(name="parts", enable_partitioning=True),
    QueueConfig(name="unique", enable_partitioning=True, requires_duplicate_detection=True),
    QueueConfig(name="sessions", enable_partitioning=True, requires_duplicate_detection=True, requires_session=True),
    QueueConfig(name="full", max_size=1),
    QueueConfig(name="large", max_message_size=10 << 20),
)

# The SDK forgets to close the socket of a connection that broke.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="west", queues=_QUEUES)]) as running:
        yield running


def send(broker: RunningBroker, queue: str, *calls: Sequence[Outgoing]) -> list[Answers]:
    return to_bus(broker.connection_string("west"), queue, *calls)


def arrived(broker: RunningBroker, queue: str) -> list[str]:
    return broker.inspect(
        "west",
        lambda west: [message.content.message_id[2:].decode() for message in west.store(queue).messages.values()],
    )


@pytest.mark.parametrize("queue", ["parts", "unique", "sessions"])
@pytest.mark.parametrize("keys", [1, 7, 200])
def test_a_partitioned_queue_gets_all_messages_with_the_order_of_their_keys(
    broker: RunningBroker, queue: str, keys: int
) -> None:
    call = [outgoing(number, f"key-{number % keys}") for number in range(200)]
    (answers,) = send(broker, queue, call)
    assert answers == [None] * 200
    found = broker.inspect(
        "west",
        lambda west: [
            (message.content.session_id, message.content.message_id[2:].decode())
            for message in sorted(west.store(queue).messages.values(), key=lambda message: message.sequence_number)
        ],
    )
    for key in {f"key-{number % keys}" for number in range(200)}:
        own = [identity for session, identity in found if session == key]
        assert own == [message.message_id for message in call if message.session_id == key]


@pytest.mark.parametrize("queue", ["parts", "unique"])
def test_messages_without_a_key_go_to_a_partitioned_queue(broker: RunningBroker, queue: str) -> None:
    first, second = [outgoing(n) for n in range(100)], [outgoing(n) for n in range(100, 150)]
    assert send(broker, queue, first, second) == [[None] * 100, [None] * 50]
    assert sorted(arrived(broker, queue)) == sorted(f"m-{number}" for number in range(150))


def test_a_property_that_is_too_large_is_rejected_alone_and_at_once(broker: RunningBroker) -> None:
    call = [outgoing(n, named={"p": string("x" * (40_000 if n == 5 else 10))}) for n in range(30)]
    started = time.monotonic()
    (answers,) = send(broker, "q", call)
    assert [type(answer) for answer in answers] == [MessageRejected if n == 5 else type(None) for n in range(30)]
    assert isinstance(answers[5], MessageRejected)
    assert (answers[5].reason, "32768" in answers[5].description) == ("PropertySizeExceeded", True)
    assert time.monotonic() - started < 10
    assert len(arrived(broker, "q")) == 29


def test_more_messages_than_a_batch_may_have_go_in_several(broker: RunningBroker) -> None:
    call = [outgoing(number, body=b"") for number in range(4_600)]
    (answers,) = send(broker, "large", call)
    assert answers == [None] * 4_600
    assert arrived(broker, "large") == [message.message_id for message in call]


def test_what_the_service_cannot_process_is_found_and_rejected_while_the_others_arrive(broker: RunningBroker) -> None:
    broker.faults("west").add(
        Fault(
            effect=Effect.REFUSE,
            operations=frozenset((Operation.SEND,)),
            condition="amqp:internal-error",
            description="The service was unable to process the request; please retry the operation.",
            containing="culprit",
        )
    )
    call = [outgoing(n, body=b"culprit" if n == 13 else b"body") for n in range(40)]

    async def body() -> tuple[list[set[int]], Answers]:
        rounds: list[set[int]] = []
        waiting: dict[int, Outgoing] = dict(enumerate(call))
        final: Answers = [None] * len(call)
        async with closing(service_bus(broker.connection_string("west"))) as output:
            for _ in range(15):
                answers = await output.send("q", list(waiting.values()), timeout_seconds=SECONDS)
                left = [n for n, answer in zip(waiting, answers, strict=True) if isinstance(answer, TargetUnavailable)]
                for n, answer in zip(waiting, answers, strict=True):
                    final[n] = answer
                rounds.append(set(left))
                waiting = {n: call[n] for n in left}
                if not waiting:
                    break
        return rounds, final

    rounds, final = asyncio.run(body())
    assert rounds[0] == set(range(40))  # it may be overload
    assert rounds[1] == {13}
    assert rounds[-1] == set()
    assert [n for n, answer in enumerate(final) if isinstance(answer, MessageRejected)] == [13]
    assert arrived(broker, "q") == [f"m-{n}" for n in range(40) if n != 13]


@pytest.mark.parametrize("count", [1, 40])
def test_overload_rejects_nothing_and_is_not_made_worse(broker: RunningBroker, count: int) -> None:
    fault = Fault(effect=Effect.REFUSE, operations=frozenset((Operation.SEND,)), condition="amqp:internal-error")
    broker.faults("west").add(fault)
    attempts = 30
    for answers in send(broker, "q", *[[outgoing(n) for n in range(count)]] * attempts):
        assert all(isinstance(answer, TargetUnavailable) and answer.retry_after is not None for answer in answers)
    # A batch, and from the second attempt on some messages of it alone.
    (plain,) = broker.inspect("west", lambda west: west.faults.plain())
    assert plain["struck"] == (attempts if count == 1 else attempts + sum(range(2, 8)) + 8 * (attempts - 7))


def test_an_overload_that_follows_partial_success_rejects_nothing(broker: RunningBroker) -> None:
    def overload(probability: float) -> Fault:
        return Fault(
            effect=Effect.REFUSE,
            operations=frozenset((Operation.SEND,)),
            condition="amqp:internal-error",
            probability=probability,
            seed=7,
        )

    async def body() -> list[Answers]:
        found: list[Answers] = []
        waiting = [outgoing(n) for n in range(60)]
        faults = broker.faults("west")
        async with closing(service_bus(broker.connection_string("west"))) as output:
            faults.add(overload(1.0))
            found += [await output.send("q", waiting, timeout_seconds=SECONDS) for _ in range(2)]
            faults.clear()
            faults.add(overload(0.5))
            found.append(await output.send("q", waiting, timeout_seconds=SECONDS))
            waiting = [message for message, answer in zip(waiting, found[-1], strict=True) if answer is not None]
            faults.clear()
            faults.add(overload(1.0))
            found += [await output.send("q", waiting, timeout_seconds=SECONDS) for _ in range(20)]
        return found

    answers = [answer for found in asyncio.run(body()) for answer in found]
    assert not [answer for answer in answers if isinstance(answer, MessageRejected)]


@pytest.mark.parametrize(("description", "seconds"), [("Please wait 2 seconds and try again.", 2), ("busy", 10)])
def test_a_busy_service_says_for_how_long(broker: RunningBroker, description: str, seconds: int) -> None:
    broker.faults("west").add(
        Fault(effect=Effect.REFUSE, condition="com.microsoft:server-busy", description=description)
    )
    ((answer,),) = send(broker, "q", [outgoing(1)])
    assert isinstance(answer, TargetUnavailable)
    assert answer.retry_after is not None
    assert answer.retry_after.total_seconds() == seconds


def test_a_full_queue_ends_the_link_and_takes_messages_again_when_there_is_room(broker: RunningBroker) -> None:
    call = [outgoing(number, body=b"x" * 60_000) for number in range(32)]

    async def body() -> tuple[Answers, Answers]:
        async with closing(service_bus(broker.connection_string("west"))) as output:
            calls = [output.send("full", call[start : start + 4], timeout_seconds=SECONDS) for start in range(0, 32, 4)]
            first = list(itertools.chain(*await asyncio.gather(*calls)))
            await asyncio.to_thread(broker.inspect, "west", lambda west: west.store("full").messages.clear())
            await asyncio.to_thread(broker.inspect, "west", lambda west: setattr(west.store("full"), "size", 0))
            return first, await output.send("full", [outgoing(99)], timeout_seconds=SECONDS)

    first, last = asyncio.run(body())
    refused = [answer for answer in first if answer is not None]
    assert refused
    assert {type(answer) for answer in refused} == {TargetRefused}
    assert "quota" in str(refused[0])
    assert last == [None]


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("Ip has been prevented to connect to the endpoint.", "firewall"),
        ("LocalAuthDisabled: Authorization failed because SAS authentication has been disabled.", "managed identity"),
        ("Unauthorized access. 'Send' claim(s) are required to perform this operation.", "right to send is missing"),
    ],
)
def test_a_refusal_names_its_cause(broker: RunningBroker, description: str, words: str) -> None:
    broker.faults("west").add(
        Fault(
            effect=Effect.REFUSE,
            operations=frozenset((Operation.ATTACH,)),
            condition="amqp:unauthorized-access",
            description=description,
        )
    )
    ((answer,),) = send(broker, "q", [outgoing(1)])
    assert isinstance(answer, TargetRefused)
    assert words in str(answer)
