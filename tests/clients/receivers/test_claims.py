"""Claims of the de-duplicating receiver: who processes a copy while others wait, are killed or cancelled."""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
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
    aio,
)
from tests.clients.applications import ENVIRONMENT, Application
from tests.clients.receivers.consuming import Effects, consume, send_to_both
from tests.clients.site import Site, both_kinds
from tests.site import until

pytestmark = pytest.mark.long


@pytest.mark.parametrize("fails", [False, True])
def test_other_copy_waits_while_one_is_processed(sync_site: Site, fails: bool) -> None:
    entity = sync_site.queue()
    inside, may_go = threading.Event(), threading.Event()
    effects = Effects({"x": 1} if fails else {})

    def slow(message: Any) -> None:
        inside.set()
        assert may_go.wait(20)
        effects(message)

    with Application("sync", sync_site.places) as application:
        send_to_both(application, entity, ServiceBusMessage("x"))
        receiver = DeduplicatingReceiver(application.receivers(entity), MemoryStore())
        stop = threading.Event()
        running = threading.Thread(target=receiver.run, args=(slow, stop), kwargs={"idle": 0.5})
        running.start()
        assert inside.wait(20)
        # Both have theirs by now: the second is locked too, and neither settled nor processed.
        until(lambda: all(not unlocked for unlocked in locked_out(sync_site, entity)))
        assert effects.seen == {}
        may_go.set()
        running.join()
    assert effects.done == {"x": 1}
    assert effects.seen == {"x": 2 if fails else 1}
    assert sync_site.ids("west", entity) == sync_site.ids("east", entity) == []


def locked_out(site: Site, entity: str) -> list[Any]:
    return [site.broker.counts(name)[entity].active - site.locked(name, entity) for name in ("west", "east")]


@both_kinds
def test_copy_that_waits_too_long_is_abandoned_and_redelivered(site: Site) -> None:
    entity = site.queue()
    store = MemoryStore()
    message = ServiceBusMessage("x", message_id="m")
    site.call(site.passive(entity).send(message))
    claim = store.claim("m", time.time())
    assert isinstance(claim, Claim)
    effects = Effects()
    receiver = site.classes.DeduplicatingReceiver(site.receivers(entity), store, patience=timedelta(seconds=0.1))
    [received] = site.call(receiver._receivers["west"].receive_messages(1, 10))
    work = site.function(effects)
    assert site.call(receiver.handle("west", received, work)) is Handled.BUSY
    assert site.ids("west", entity) == [message.message_id]
    store.record(claim, time.time())
    [received] = site.call(receiver._receivers["west"].receive_messages(1, 10))
    assert site.call(receiver.handle("west", received, work)) is Handled.DUPLICATE
    assert effects.seen == {}


@both_kinds
def test_claim_of_a_dead_receiver_uses_up_no_delivery(site: Site, tmp_path: Path) -> None:
    entity = site.queue("twice")
    store = SqliteStore(tmp_path / "seen.db", lease=timedelta(seconds=1))
    site.call(site.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    assert isinstance(store.claim("m", time.time()), Claim)
    effects = Effects()
    receiver = consume(site, entity, effects, store=store, patience=timedelta(seconds=0.1))
    store.close()
    assert effects.done == {"x": 1}
    assert receiver.counts["west"] == {Handled.PROCESSED: 1}


@both_kinds
def test_claim_is_renewed_while_the_application_works(site: Site, tmp_path: Path) -> None:
    entity = site.queue()
    store = SqliteStore(tmp_path / "seen.db", lease=timedelta(seconds=0.8))
    site.call(site.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    [received] = site.call(site.receivers(entity)["west"].receive_messages(1, 10))
    receiver = site.classes.DeduplicatingReceiver(site.receivers(entity), store)
    seen = []

    def slow(_: Any) -> None:
        time.sleep(1)
        seen.append(store.claim("m", time.time()))

    assert site.call(receiver.handle("west", received, site.function(slow)))
    assert seen == [State.BUSY]
    store.close()


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


@both_kinds
@pytest.mark.parametrize("question", ["claim", "record", "release"])
def test_unavailable_store_uses_up_no_delivery_and_causes_no_second_processing(site: Site, question: str) -> None:
    entity = site.queue("twice")
    site.call(site.passive(entity).send(ServiceBusMessage("x")))
    effects = Effects({"x": 1} if question == "release" else {})
    receiver = consume(site, entity, effects, store=StoreThatIsAway(question, 3), idle=0.5)
    assert effects.done == {"x": 1}
    assert effects.seen["x"] == (2 if question == "release" else 1)
    assert site.ids("west", entity) == site.dead("west", entity) == []
    assert receiver.errors == {"west": None, "east": None}


def test_late_answer_to_a_release_does_not_forget_the_success_of_the_other_copy() -> None:
    released, may_answer = threading.Event(), threading.Event()

    class Late(StoreThatIsAway):
        def release(self, claim: Any) -> None:
            super().release(claim)
            if not released.is_set():
                released.set()
                assert may_answer.wait(20)

    async def settle(*_: Any) -> None:
        pass

    async def fails(_: Any) -> None:
        raise RuntimeError("no")

    async def run() -> Handled:
        link: Any = SimpleNamespace(session=None, complete_message=settle, abandon_message=settle)
        message: Any = SimpleNamespace(message_id="m", locked_until_utc=None)
        store = Late("record", 1)
        receiver = aio.DeduplicatingReceiver({"west": link, "east": link}, store, patience=timedelta(seconds=0.1))
        failing = asyncio.create_task(receiver.handle("west", message, fails))
        await asyncio.to_thread(released.wait, 20)
        with pytest.raises(StoreUnavailable):
            await receiver.handle("east", message, settle)
        may_answer.set()
        assert await failing is Handled.FAILED
        return await receiver.handle("east", message, fails)

    assert asyncio.run(run()) is Handled.DUPLICATE


def test_cancelled_application_releases_its_claim(sync_site: Site) -> None:
    entity = sync_site.queue()
    store = MemoryStore()
    with Application("aio", sync_site.places) as application:
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


def test_killed_consumer_processes_again_only_what_was_not_recorded(sync_site: Site, tmp_path: Path) -> None:
    entity = sync_site.queue()
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
        with Application("sync", sync_site.places) as application:
            application.passive(entity).send(ServiceBusMessage(moment))
            effects = tmp_path / moment
            command = [sys.executable, "-c", script, sync_site.places["west"], entity, str(effects), moment]
            killed = subprocess.run(command, env=ENVIRONMENT, timeout=60, check=False)  # noqa: S603 - our own script
            assert killed.returncode == -9
            sync_site.faults("west").expire_locks(entity)
            store = SqliteStore(f"{effects}.db")

            def again(message: Any, effects: Any = effects) -> None:
                with effects.open("a") as file:
                    file.write(f"{message}\n")

            receiver = DeduplicatingReceiver({"west": application.receivers(entity)["west"]}, store)
            receiver.run(again, threading.Event(), idle=0.5)
            store.close()
        assert effects.read_text().split() == [moment] * times
        assert sync_site.ids("west", entity) == []
