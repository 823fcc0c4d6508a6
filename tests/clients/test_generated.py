"""The synchronous half: generated from the asynchronous one, and not to be used with what belongs to that."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_clients import (
    ActiveSender,
    Claim,
    DeduplicatingReceiver,
    DurableSender,
    MemoryStore,
    NotSynchronous,
    Outbox,
    PassiveSender,
)

GENERATOR = Path(__file__).parents[2] / "tools" / "generate-sync-clients"


def test_synchronous_half_is_up_to_date() -> None:
    command = [sys.executable, str(GENERATOR), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own script
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Awaited:
    """A sender, a receiver or an application whose calls must be awaited."""

    session = None

    def __enter__(self) -> None:
        pass

    async def _answer(self, *_: Any, **__: Any) -> None:
        await asyncio.sleep(0)

    receive_messages: Any
    send = send_messages = create_message_batch = receive_messages = complete_message = __call__ = _answer


class OneMessage(Awaited):
    """A synchronous receiver of one message."""

    message_id = "m"

    def __init__(self) -> None:
        self.receive_messages = lambda **_: [self]


AWAITED: Any = Awaited()


def active(_: Path) -> None:
    ActiveSender({"west": AWAITED, "east": AWAITED}).send(ServiceBusMessage("x"))


def passive(_: Path) -> None:
    PassiveSender({"west": AWAITED}).send([ServiceBusMessage("x"), ServiceBusMessage("y")])


def durable(path: Path) -> None:
    outbox = Outbox(path / "outbox.db")
    try:
        DurableSender(AWAITED, outbox).send(ServiceBusMessage("x"))
    finally:
        outbox.close()


def receiver(_: Path) -> None:
    DeduplicatingReceiver({"west": AWAITED}, MemoryStore()).run(lambda _: None, threading.Event(), idle=0.1)


def application(_: Path) -> None:
    receivers: dict[str, Any] = {"west": OneMessage()}
    store = MemoryStore()
    try:
        DeduplicatingReceiver(receivers, store).run(AWAITED, threading.Event(), idle=0.1)
    finally:
        assert isinstance(store.claim("m", 0.0), Claim)  # another receiver may process it


@pytest.mark.parametrize("use", [active, passive, durable, receiver, application])
def test_synchronous_class_refuses_what_must_be_awaited(use: Any, tmp_path: Path) -> None:
    with pytest.raises(NotSynchronous, match=r"returned a coroutine, expected synchronous .*; use busway_clients\.aio"):
        use(tmp_path)
