"""
The service `Settlement` of the local host, with grpc's own client: each answer as in Microsoft's sources.

Renewals name the link of the receiver (SR16), settlements of a session need it (SR2, SR3), others do not (SR5).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.message import State
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from host.settings import ServiceBusOptions
from shared.amqp.codec import encode
from shared.amqp.values import map_, string
from shared.clock import ManualClock
from tests.wire.settling import Held, Refused, RunningListeners, is_held, send

_SECOND = timedelta(seconds=1)
LOCK = 60 * _SECOND
START = datetime(2026, 1, 1, tzinfo=UTC)
_DOTNET = "Azure.Messaging.ServiceBus.ServiceBusException: "
_NO_TOKEN = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    queues = (
        QueueConfig(name="q", lock_duration=LOCK),
        *(QueueConfig(name=name, lock_duration=LOCK, requires_session=True) for name in ("s", "t")),
    )
    with RunningBroker([NamespaceConfig(name="ns", queues=queues)], ManualClock(START)) as running:
        yield running


def left(broker: RunningBroker, path: str) -> list[tuple[str, int, bool]]:
    """Return the last character of the body, the delivery count and whether it is locked, of each message."""
    return broker.inspect(
        "ns",
        lambda each: [
            (one.encode()[-1:].decode(), one.delivery_count, one.lock_token is not None)
            for one in each.store(path).peek(0)
        ],
    )


def run(broker: RunningBroker, work: Callable[[RunningListeners], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20), RunningListeners(broker) as listeners:
            await work(listeners)

    asyncio.run(within())


async def until(condition: Callable[[], object]) -> None:
    while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - another thread makes it true
        await asyncio.sleep(0.01)


async def refusal(held: Held, name: str, **fields: Any) -> tuple[str, str]:
    """Return code and text of a call that is refused."""
    try:
        await held.call(name, **fields)
    except Refused as error:
        return error.code.name, str(error)
    pytest.fail(f"{name} was not refused")


@pytest.mark.parametrize("fails", [False, True])
def test_batch_is_settled_but_for_what_the_function_has_settled(broker: RunningBroker, fails: bool) -> None:
    send(broker, "q", *"12345")
    changes = encode(map_([(string("seen"), string("yes"))]))
    calls: list[tuple[str, dict[str, Any]]] = [
        ("Complete", {}),
        ("Abandon", {"propertiesToModify": changes}),
        ("Defer", {}),
        ("Deadletter", {"deadletterReason": {"value": "odd"}, "deadletterErrorDescription": {"value": "x" * 300}}),
    ]
    ended = asyncio.Event()
    # On a busy machine the first batch has fewer than five.
    waiting = [*calls, None]

    async def act(held: Held) -> None:
        if ended.is_set():
            await asyncio.sleep(60)
        for token in held.tokens:
            if call := waiting.pop(0):
                await held.call(call[0], locktoken=token, **call[1])
        if waiting:
            return
        ended.set()
        if fails:
            raise ValueError("asked for")

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen("q", act)
        await ended.wait()
        # Abandoned by the function, or by the host after the failure: delivered again.
        again = [("2", 1, True), ("5", 1, True)] if fails else [("2", 1, True)]
        await until(lambda: [one for one in left(broker, "q") if one[0] != "3"] == again)

    run(broker, work)
    (dead,) = broker.inspect("ns", lambda each: [one.encode() for one in each.store("q/$DeadLetterQueue").peek(0)])
    assert (dead[-1:], b"odd" in dead, b"x" * 300 in dead) == (b"4", True, True)
    abandoned, deferred = broker.inspect("ns", lambda each: list(each.store("q").peek(2))[:2])
    assert b"seen" in abandoned.encode()
    assert deferred.state is State.DEFERRED


@pytest.mark.parametrize(
    ("queue", "wait", "batches"),
    [("q", 60, [["1", "2", "3"]]), ("q", 0.2, [["1", "2"], ["3"]]), ("s", 60, [["1", "2"], ["3"]])],
)
def test_batch_waits_for_its_least_size_but_not_too_long_nor_beyond_its_session(
    broker: RunningBroker, queue: str, wait: float, batches: list[list[str]]
) -> None:
    session_id = "a" if queue == "s" else None
    send(broker, queue, "1", "2", session_id=session_id)
    found: list[list[str]] = []
    options = ServiceBusOptions(min_message_batch_size=3, max_batch_wait_time=timedelta(seconds=wait))

    async def act(held: Held) -> None:
        found.append(held.bodies)

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen(queue, act, sessions=session_id is not None, options=options)
        await until(lambda: all(is_locked for *_, is_locked in left(broker, queue)))
        assert found == []
        # The first batch of the others goes out incomplete: after its time, or at the end of its session.
        await until(lambda: len(batches) == 1 or found)
        await asyncio.to_thread(send, broker, queue, "3", session_id=session_id)
        await until(lambda: left(broker, queue) == [])

    run(broker, work)
    assert found == batches


def test_unknown_and_lost_locks_are_answered_as_microsoft_does(broker: RunningBroker) -> None:
    send(broker, "q", "1", "2", "3")
    found: dict[str, tuple[str, str]] = {}

    async def act(held: Held) -> None:
        first, second, third = held.tokens
        found["unknown"] = await refusal(held, "Complete", locktoken=_NO_TOKEN)
        found["session"] = await refusal(held, "RenewSessionLock", sessionId="a")
        await held.call("Complete", locktoken=first)
        found["twice"] = await refusal(held, "Complete", locktoken=first)
        found["long"] = await refusal(held, "Deadletter", locktoken=second, deadletterReason={"value": "x" * 4097})
        busy = Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SETTLE}), times=1)
        await asyncio.to_thread(broker.faults("ns").add, busy)
        found["busy"] = await refusal(held, "Complete", locktoken=third)
        await asyncio.to_thread(broker.advance, LOCK.total_seconds())
        found["expired"] = await refusal(held, "Complete", locktoken=second)
        found["renewal"] = await refusal(held, "RenewMessageLock", locktoken=second)

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen("q", act)
        await until(lambda: len(found) == 7)

    run(broker, work)
    lost = "(MessageLockLost). For troubleshooting information, see https://aka.ms/azsdk/net/servicebus/exceptions"
    assert found["unknown"] == ("FAILED_PRECONDITION", f"LockToken {_NO_TOKEN} not found.")
    assert found["session"] == ("FAILED_PRECONDITION", "SessionId a not found.")
    assert found["long"][1].startswith("System.ArgumentOutOfRangeException: The argument 'deadLetterReason' cannot")
    assert "(ServiceBusy)" in found["busy"][1]
    for name in ("twice", "expired", "renewal"):
        assert found[name][0] == "UNKNOWN"
        assert found[name][1].startswith(_DOTNET)
        assert lost in found[name][1]


def test_session_is_renewed_and_released_through_the_receiver_that_holds_it(broker: RunningBroker) -> None:
    send(broker, "s", "1", session_id="a")
    send(broker, "s", "2", session_id="b")
    found: list[Any] = []

    async def act(held: Held) -> None:
        if len(found) < 2:
            attached = held.session_locked_until
            await asyncio.to_thread(broker.advance, 20)
            renewed = await held.call("RenewSessionLock", sessionId=held.session_id)
            await held.call("SetSessionState", sessionId=held.session_id, sessionState=b"state")
            state = (await held.call("GetSessionState", sessionId=held.session_id)).sessionState
            refused = await refusal(held, "RenewMessageLock", locktoken=held.tokens[0])
            found.append((attached, renewed.lockedUntil.ToDatetime(UTC), state, refused))
            await asyncio.to_thread(send, broker, "s", "3", session_id=held.session_id)
            await held.call("ReleaseSession", sessionId=held.session_id)
        else:
            found.append((held.session_id, datetime.fromisoformat(held.session_locked_until)))

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen("s", act, sessions=True)
        await until(lambda: len(found) >= 4 and left(broker, "s") == [])

    run(broker, work)
    first, second, *later = found
    text = "System.InvalidOperationException: Messages cannot be locked when working with session-enabled entities."
    for index, (attached, renewed, state, (code, refused)) in enumerate((first, second)):
        assert datetime.fromisoformat(attached) == START + 20 * index * _SECOND + LOCK
        assert renewed == START + 20 * (index + 1) * _SECOND + LOCK
        assert (state, code, refused.startswith(text)) == (b"state", "UNKNOWN", True)
    # Each session was closed after its first batch, although it had another message; any session may be next.
    assert sorted(later) == [(name, START + 40 * _SECOND + LOCK) for name in "ab"]


def test_session_in_the_metadata_has_the_end_of_the_latest_renewal(broker: RunningBroker) -> None:
    send(broker, "s", "1", session_id="a")
    ends: list[datetime] = []

    async def act(held: Held) -> None:
        ends.append(datetime.fromisoformat(held.session_locked_until))
        if len(ends) == 1:
            await asyncio.to_thread(broker.advance, 20)
            await held.call("RenewSessionLock", sessionId="a")
            await asyncio.to_thread(send, broker, "s", "2", session_id="a")

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen("s", act, sessions=True)
        await until(lambda: len(ends) == 2)

    run(broker, work)
    assert ends == [START + LOCK, START + 20 * _SECOND + LOCK]


def test_of_two_sessions_with_one_id_the_first_is_found_until_one_of_them_ends(broker: RunningBroker) -> None:
    send(broker, "s", "1", session_id="a")
    send(broker, "t", "1", session_id="a")
    first_holds, second_asks, first_ends = asyncio.Event(), asyncio.Event(), asyncio.Event()
    found: list[Any] = []

    async def first(_: Held) -> None:
        first_holds.set()
        await second_asks.wait()

    async def second(held: Held) -> None:
        if found:
            return  # its session was lost
        await asyncio.to_thread(broker.advance, 20)
        await held.call("RenewSessionLock", sessionId="a")
        await asyncio.to_thread(broker.advance, 45)
        found.append([await asyncio.to_thread(is_held, broker, queue, "a") for queue in "st"])
        second_asks.set()
        await first_ends.wait()
        found.append(await refusal(held, "RenewSessionLock", sessionId="a"))

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen("s", first, sessions=True)
        await first_holds.wait()
        await listeners.listen("t", second, sessions=True)
        await second_asks.wait()
        await until(lambda: left(broker, "s") == [])
        first_ends.set()
        await until(lambda: len(found) == 2)

    run(broker, work)
    assert found == [[True, False], ("FAILED_PRECONDITION", "SessionId a not found.")]


@pytest.mark.parametrize("sessions", [False, True])
def test_what_was_received_over_a_lost_link_is_settled_except_in_sessions(
    broker: RunningBroker, sessions: bool
) -> None:
    queue = "s" if sessions else "q"
    send(broker, queue, "1", "2", session_id="a" if sessions else None)
    found: list[Any] = []

    async def act(held: Held) -> None:
        if not found:
            await asyncio.to_thread(broker.faults("ns").cut_connections)
            await asyncio.sleep(0.1)
            if sessions:
                found.append(await refusal(held, "Complete", locktoken=held.tokens[0]))
                found.append(await refusal(held, "RenewSessionLock", sessionId="a"))
            else:
                found.append(await held.call("Complete", locktoken=held.tokens[0]))
        else:
            found.append(held.tokens)

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen(queue, act, sessions=sessions)
        await until(lambda: found and left(broker, queue) == [])

    run(broker, work)
    if sessions:
        *refused, again = found
        assert all(code == "UNKNOWN" and "(SessionLockLost)" in text for code, text in refused)
        assert len(again) == 2
    else:
        assert len(found) == 1  # not delivered again


@pytest.mark.parametrize("sessions", [False, True])
def test_single_dispatch_settles_and_renews_through_the_service(broker: RunningBroker, sessions: bool) -> None:
    queue = "s" if sessions else "q"
    send(broker, queue, "1", session_id="a" if sessions else None)
    ends: list[Any] = []

    async def act(held: Held) -> None:
        (token,) = held.tokens
        if sessions:
            ends.append((await held.call("RenewSessionLock", sessionId="a")).lockedUntil)
            await held.call("ReleaseSession", sessionId="a")
        else:
            await held.call("RenewMessageLock", locktoken=token)
        await held.call("Deadletter", locktoken=token, deadletterReason={"value": "odd"})
        raise ValueError("asked for")

    async def work(listeners: RunningListeners) -> None:
        await listeners.listen(queue, act, sessions=sessions, many=False)
        await until(lambda: left(broker, f"{queue}/$DeadLetterQueue"))
        await until(lambda: left(broker, queue) == [])

    run(broker, work)
