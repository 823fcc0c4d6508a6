"""The two connections that an output for AMQP 1.0 brokers has to one address."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.amqp.values import Value
from shared.ends.amqp import output as amqp_output
from shared.ends.amqp.output import Address, AmqpOutput
from shared.errors import BuswayError, MessageRejected, TargetUnavailable
from shared.protocols import Outgoing
from tests.wire.amqp_calls import SECONDS, output_to
from tests.wire.answering_broker import AnsweringBroker, Peer

pytestmark = pytest.mark.filterwarnings("error")


class Recording(AnsweringBroker):
    """Keeps what came over each connection."""

    def __init__(self, most_connections: int = 100) -> None:
        super().__init__()
        self.by_peer: dict[Peer, list[bytes]] = {}
        self.most_connections = most_connections
        self.second = asyncio.Event()

    async def start(self, peer: Peer) -> bool:
        if len(self.by_peer) >= self.most_connections:
            return False
        self.by_peer[peer] = []
        return await super().start(peer)

    def attach(self, peer: Peer, fields: Sequence[Value]) -> None:
        super().attach(peer, fields)
        if len(self.by_peer) > 1:
            self.second.set()

    async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
        self.by_peer[peer].append(content)
        return await super().take(peer, delivery, content)


def keyed(count: int, keys: int, name: str = "m") -> list[Outgoing]:
    """Return messages of some sessions; every fourth has no session."""
    sessions = [f"s{number % keys}" if number % 4 else None for number in range(count)]
    return [Outgoing(f"{name}-{number}".encode(), None, session, None) for number, session in enumerate(sessions)]


async def opened_twice(output: AmqpOutput, broker: Recording) -> None:
    """Send a large batch, and wait until the second connection is used."""
    for batch in (keyed(1, 1, "zero"), keyed(199, 100, "first")):
        assert not any(await output.send("q", batch, timeout_seconds=SECONDS))
    async with asyncio.timeout(SECONDS):
        await broker.second.wait()
    await second_opened(output)


async def second_opened(output: AmqpOutput) -> None:
    """Wait for the end of the last attempt to open a second connection."""
    opening = output._addresses["q"]._opening
    assert opening is not None
    async with asyncio.timeout(SECONDS):
        await opening


async def end_noticed(output: AmqpOutput) -> None:
    """Wait until the output knows that one of its two connections has ended."""
    address: Address = output._addresses["q"]
    async with asyncio.timeout(SECONDS):
        while address._pair == (address._first.link, address._second.link):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)


def test_many_messages_open_a_second_connection_and_each_key_keeps_its_order_and_its_connection() -> None:
    async def run() -> None:
        broker = Recording()
        async with output_to(broker) as output:
            await opened_twice(output, broker)
            for each in broker.by_peer.values():
                each.clear()
            batches = [keyed(200, 100, "second"), keyed(30, 100, "third")]
            for batch in batches:
                assert not any(await output.send("q", batch, timeout_seconds=SECONDS))
        first, second = broker.by_peer.values()
        assert len(first) > 50
        assert len(second) > 50
        assert broker.connections == 2
        for session in {message.session_id for batch in batches for message in batch}:
            expected = [message.content for batch in batches for message in batch if message.session_id == session]
            found = [[each for each in of_peer if each in expected] for of_peer in (first, second)]
            if session is None:
                # Those of one batch are together.
                expected = [message.content for message in batches[0] if message.session_id is None]
                found = [[each for each in of_peer if each in expected] for of_peer in (first, second)]
            assert sorted(found) == [[], expected]

    asyncio.run(run())


def test_batches_without_keys_that_are_under_way_together_use_both_connections() -> None:
    async def run() -> None:
        broker = Recording()
        async with output_to(broker) as output:
            await opened_twice(output, broker)
            batches = [[Outgoing(b"%d-%d" % (n, each), None, None, None) for each in range(60)] for n in range(2)]
            await asyncio.gather(*(output.send("q", batch, timeout_seconds=SECONDS) for batch in batches))
        ends = [of_peer[-60:] for of_peer in broker.by_peer.values()]
        assert sorted(ends) == [[message.content for message in batch] for batch in batches]

    asyncio.run(run())


def test_small_batches_use_one_connection() -> None:
    async def run() -> None:
        broker = Recording()
        async with output_to(broker) as output:
            for number in range(10):
                assert not any(await output.send("q", keyed(99, 20, str(number)), timeout_seconds=SECONDS))
        assert broker.connections == 1

    asyncio.run(run())


def test_of_each_key_one_message_counts() -> None:
    async def run() -> None:
        broker = Recording()
        async with output_to(broker) as output:
            batches = [
                [Outgoing(b"%d-%d" % (batch, each), None, f"{batch}-{each % 50}", None) for each in range(500)]
                for batch in range(2)
            ]
            for batch in batches:
                assert not any(await output.send("q", batch, timeout_seconds=SECONDS))
            assert broker.connections == 1
            await asyncio.gather(*(output.send("q", batch, timeout_seconds=SECONDS) for batch in batches))
            await second_opened(output)
            assert broker.connections == 2

    asyncio.run(run())


def test_a_broker_that_takes_one_connection_gets_all_messages_over_it_and_is_asked_once_in_a_minute() -> None:
    async def run() -> None:
        broker = Recording(most_connections=1)
        async with output_to(broker) as output:
            for number in range(5):
                assert not any(await output.send("q", keyed(200, 100, str(number)), timeout_seconds=SECONDS))
                if number:  # the first send opens the first connection
                    await second_opened(output)
        assert len(broker.contents) == 1_000
        assert broker.connections == 2

    asyncio.run(run())


@pytest.mark.parametrize("which", [0, 1])
def test_after_the_end_of_one_connection_only_one_is_used_for_a_minute(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        broker = Recording()
        async with output_to(broker) as output:
            await opened_twice(output, broker)
            peers = list(broker.by_peer)
            peers[which].cut()
            await end_noticed(output)
            counts = [len(each) for each in broker.by_peer.values()]
            for number in range(2):
                assert not any(await output.send("q", keyed(200, 100, str(number)), timeout_seconds=SECONDS))
                await second_opened(output)
            assert broker.connections == (3 if which == 0 else 2)
            last = list(broker.by_peer.values())[-1 if which == 0 else 0]
            assert len(last) == 400 + (0 if which == 0 else counts[0])
            monkeypatch.setattr(amqp_output, "_CALM_SECONDS", 0.0)
            address: Address = output._addresses["q"]
            address._calm_from = 0.0
            for number in range(2):
                assert not any(await output.send("q", keyed(200, 100, f"x{number}"), timeout_seconds=SECONDS))
                await second_opened(output)
            assert sum(bool(each) and b"x1" in b"".join(each) for each in broker.by_peer.values()) == 2

    asyncio.run(run())


def test_a_message_for_which_the_second_link_is_closed_is_found_and_the_second_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(amqp_output, "_CALM_SECONDS", 0.0)

    class Detaching(Recording):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            self._detach = (len(self.contents) + 1, "amqp:decode-error") if content == bad else None
            return await super().take(peer, delivery, content)

    async def run() -> None:
        async with output_to(broker) as output:
            await opened_twice(output, broker)
            address: Address = output._addresses["q"]
            answers = await in_attempts(output, messages)
            assert [messages[at].content for at, answer in answers.items() if answer is not None] == [bad]
            for number in range(2):
                assert not any(await output.send("q", keyed(200, 100, f"x{number}"), timeout_seconds=SECONDS))
                await second_opened(output)
            assert address._has_two()

    broker, messages = Detaching(), keyed(200, 100)
    bad = next(message.content for message in messages if message.session_id and hash(message.session_id) & 1)
    asyncio.run(run())


def test_a_call_that_is_closed_while_the_second_connection_opens_ends() -> None:
    async def run() -> None:
        broker = Recording(most_connections=1)
        async with output_to(broker) as output:
            assert not any(await output.send("q", keyed(10, 2), timeout_seconds=SECONDS))
            call = asyncio.create_task(output.send("q", keyed(200, 100), timeout_seconds=SECONDS))
            await asyncio.sleep(0)
            await output.close()
            async with asyncio.timeout(SECONDS):
                await call

    asyncio.run(run())


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 239), max_size=3, unique=True),
    st.lists(st.integers(0, 199), min_size=1, max_size=2),
    st.integers(1, 30),
)
def test_messages_that_make_the_broker_close_connections_are_rejected_alone_and_orders_are_kept(
    bad: list[int], cuts: list[int], keys: int
) -> None:
    messages = keyed(240, keys)
    faulty, due = {messages[each].content for each in bad}, list(cuts)

    class Breaking(Recording):
        async def take(self, peer: Peer, delivery: int, content: bytes) -> bool:
            if content in faulty:
                self.by_peer[peer].append(content)
                return False
            if len(self.contents) - 200 in due:
                due.remove(len(self.contents) - 200)
                return False
            return await super().take(peer, delivery, content)

    async def run() -> None:
        broker = Breaking()
        async with output_to(broker, quiet_seconds=0.01) as output:
            await opened_twice(output, broker)
            answers = await in_attempts(output, messages)
        assert {messages[at].content for at, answer in answers.items() if answer is not None} == faulty
        arrived = list(dict.fromkeys(broker.contents[200:]))
        assert set(arrived) == {message.content for message in messages} - faulty
        for key in {message.session_id for message in messages if message.session_id}:
            expected = [
                message.content for message in messages if message.session_id == key and message.content not in faulty
            ]
            assert [each for each in arrived if each in set(expected)] == expected

    asyncio.run(run())


async def in_attempts(output: AmqpOutput, messages: Sequence[Outgoing]) -> dict[int, BuswayError | None]:
    """Send until each message is accepted or rejected."""
    answers: dict[int, BuswayError | None] = {}
    left = list(range(len(messages)))
    for _ in range(60):
        if not left:
            break
        found = await output.send("q", [messages[at] for at in left], timeout_seconds=20.0)
        answers |= dict(zip(left, found, strict=True))
        left = [at for at in left if isinstance(answers[at], TargetUnavailable)]
    assert not left
    assert all(answer is None or isinstance(answer, MessageRejected) for answer in answers.values())
    return answers
