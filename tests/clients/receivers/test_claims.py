"""Claims of the de-duplicating receiver: who processes a copy while others wait, are killed or cancelled."""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_clients import (
    Claim,
    DeduplicatingReceiver,
    Handled,
    MemoryStore,
    SqliteStore,
    State,
    StoreUnavailable,
)
from tests.clients.applications import ENVIRONMENT, Application
from tests.clients.conftest import Pair
from tests.clients.receivers.consuming import Effects, consume, send_to_both, until


@pytest.mark.parametrize("fails", [False, True])
def test_other_copy_waits_while_one_is_processed(pair: Pair, queue: Callable[..., str], fails: bool) -> None:
    entity = queue()
    inside, may_go = threading.Event(), threading.Event()
    effects = Effects({"x": 1} if fails else {})

    def slow(message: Any) -> None:
        inside.set()
        assert may_go.wait(20)
        effects(message)

    with Application("sync", pair.places) as application:
        send_to_both(application, entity, ServiceBusMessage("x"))
        receiver = DeduplicatingReceiver(application.receivers(entity), MemoryStore())
        stop = threading.Event()
        running = threading.Thread(target=receiver.run, args=(slow, stop), kwargs={"idle": 0.5})
        running.start()
        assert inside.wait(20)
        # Both have theirs by now: the second is locked too, and neither settled nor processed.
        until(lambda: all(not unlocked for unlocked in locked_out(pair, entity)))
        assert effects.seen == {}
        may_go.set()
        running.join()
    assert effects.done == {"x": 1}
    assert effects.seen == {"x": 2 if fails else 1}
    assert pair.ids("west", entity) == pair.ids("east", entity) == []


def locked_out(pair: Pair, entity: str) -> list[Any]:
    return [pair.broker.counts(name)[entity].active - pair.locked(name, entity) for name in ("west", "east")]


def test_copy_that_waits_too_long_is_abandoned_and_redelivered(
    application: Application, pair: Pair, queue: Callable[..., str]
) -> None:
    entity = queue()
    store = MemoryStore()
    message = ServiceBusMessage("x", message_id="m")
    application.call(application.passive(entity).send(message))
    claim = store.claim("m", time.time())
    assert isinstance(claim, Claim)
    effects = Effects()
    receiver = application.classes.DeduplicatingReceiver(
        application.receivers(entity), store, patience=timedelta(seconds=0.1)
    )
    [received] = application.call(receiver._receivers["west"].receive_messages(1, 10))
    work = effects if application.kind == "sync" else effects.awaited
    assert application.call(receiver.handle("west", received, work)) is Handled.BUSY
    assert pair.ids("west", entity) == [message.message_id]
    store.record(claim, time.time())
    [received] = application.call(receiver._receivers["west"].receive_messages(1, 10))
    assert application.call(receiver.handle("west", received, work)) is Handled.DUPLICATE
    assert effects.seen == {}


def test_claim_of_a_dead_receiver_uses_up_no_delivery(
    application: Application, queue: Callable[..., str], tmp_path: Path
) -> None:
    entity = queue("twice")
    store = SqliteStore(tmp_path / "seen.db", lease=timedelta(seconds=1))
    application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    assert isinstance(store.claim("m", time.time()), Claim)
    effects = Effects()
    receiver = consume(application, entity, effects, store=store, patience=timedelta(seconds=0.1))
    store.close()
    assert effects.done == {"x": 1}
    assert receiver.counts["west"] == {Handled.PROCESSED: 1}


def test_claim_is_renewed_while_the_application_works(
    application: Application, queue: Callable[..., str], tmp_path: Path
) -> None:
    entity = queue()
    store = SqliteStore(tmp_path / "seen.db", lease=timedelta(seconds=0.8))
    application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    [received] = application.call(application.receivers(entity)["west"].receive_messages(1, 10))
    receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)
    seen = []

    def slow(_: Any) -> None:
        time.sleep(1)
        seen.append(store.claim("m", time.time()))

    async def awaited(_: Any) -> None:
        await asyncio.sleep(1)
        seen.append(store.claim("m", time.time()))

    assert application.call(receiver.handle("west", received, slow if application.kind == "sync" else awaited))
    assert seen == [State.BUSY]
    store.close()


def test_cancelled_receiver_releases_its_requested_claim(pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    asked, may_answer, given_back = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryStore):
        is_local = False

        def claim(self, identity: Any, now: Any) -> Any:
            asked.set()
            assert may_answer.wait(20)
            return super().claim(identity, now)

        def release(self, claim: Any) -> None:
            super().release(claim)
            given_back.set()

    store = Slow()
    with Application("aio", pair.places) as application:
        application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
        receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)

        async def interrupted() -> None:
            task = asyncio.create_task(receiver.run(Effects().awaited, asyncio.Event()))
            await asyncio.to_thread(asked.wait, 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            may_answer.set()

        application.call(interrupted())
    assert given_back.wait(20)
    assert isinstance(store.claim("m", time.time()), Claim)


class StoreThatIsAway(MemoryStore):
    """Does not answer to one kind of question for some times."""

    is_local = False

    def __init__(self, question: Any, times: Any) -> None:
        super().__init__()
        self._away = Counter({question: times})

    def _answer(self, question: Any) -> None:
        if self._away[question] > 0:
            self._away[question] -= 1
            raise StoreUnavailable(f"store: no answer to {question}")

    def claim(self, identity: Any, now: Any) -> Any:
        self._answer("claim")
        return super().claim(identity, now)

    def record(self, claim: Any, now: Any) -> None:
        self._answer("record")
        super().record(claim, now)

    def release(self, claim: Any) -> None:
        self._answer("release")
        super().release(claim)


@pytest.mark.parametrize("question", ["claim", "record", "release"])
def test_unavailable_store_uses_up_no_delivery_and_causes_no_second_processing(
    application: Application, pair: Pair, queue: Callable[..., str], question: str
) -> None:
    entity = queue("twice")
    application.call(application.passive(entity).send(ServiceBusMessage("x")))
    effects = Effects({"x": 1} if question == "release" else {})
    receiver = consume(application, entity, effects, store=StoreThatIsAway(question, 3), idle=0.5)
    assert effects.done == {"x": 1}
    assert effects.seen["x"] == (2 if question == "release" else 1)
    assert pair.ids("west", entity) == pair.dead("west", entity) == []
    assert receiver.errors == {"west": None, "east": None}


def test_cancelled_application_releases_its_claim(pair: Pair, queue: Callable[..., str]) -> None:
    entity = queue()
    store = MemoryStore()
    with Application("aio", pair.places) as application:
        application.call(application.passive(entity).send(ServiceBusMessage("x", message_id="m")))
        receiver = application.classes.DeduplicatingReceiver(application.receivers(entity), store)

        async def interrupted() -> None:
            started = asyncio.Event()

            async def endless(_: Any) -> None:
                started.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(receiver.run(endless, asyncio.Event()))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        application.call(interrupted())
    assert isinstance(store.claim("m", time.time()), Claim)


def test_killed_consumer_processes_again_only_what_was_not_recorded(
    pair: Pair, queue: Callable[..., str], tmp_path: Path
) -> None:
    entity = queue()
    script = textwrap.dedent("""
        import os, signal, sys, threading
        from datetime import timedelta
        from azure.servicebus import ServiceBusClient
        from busway_clients import DeduplicatingReceiver, SqliteStore

        class Killing(SqliteStore):
            def record(self, claim, now):
                if sys.argv[4] == "after":
                    super().record(claim, now)
                os.kill(os.getpid(), signal.SIGKILL)

        def application(message):
            with open(sys.argv[3], "a") as effects:
                effects.write(str(message) + "\\n")

        client = ServiceBusClient.from_connection_string(sys.argv[1])
        receivers = {"west": client.get_queue_receiver(sys.argv[2])}
        store = Killing(sys.argv[3] + ".db", lease=timedelta(seconds=1))
        DeduplicatingReceiver(receivers, store).run(application, threading.Event())
    """)
    for moment, times in (("before", 2), ("after", 1)):
        with Application("sync", pair.places) as application:
            application.passive(entity).send(ServiceBusMessage(moment))
            effects = tmp_path / moment
            command = [sys.executable, "-c", script, pair.places["west"], entity, str(effects), moment]
            killed = subprocess.run(command, env=ENVIRONMENT, timeout=60, check=False)  # noqa: S603 - our own script
            assert killed.returncode == -9
            pair.faults("west").expire_locks(entity)
            store = SqliteStore(f"{effects}.db")

            def again(message: Any, effects: Any = effects) -> None:
                with effects.open("a") as file:
                    file.write(f"{message}\n")

            receiver = DeduplicatingReceiver({"west": application.receivers(entity)["west"]}, store)
            receiver.run(again, threading.Event(), idle=0.5)
            store.close()
        assert effects.read_text().split() == [moment] * times
        assert pair.ids("west", entity) == []
