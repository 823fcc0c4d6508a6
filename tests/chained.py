"""A chain and what verifies it, each as a pipeline that can be restarted with the same store."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.errors import MessageRejected
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether, Outcome, Withheld
from tests import editing
from tests.keys import jwks, made, settings
from tests.messages import message

WEST, EAST = Origin("west", "orders"), Origin("east", "orders")


def store_settings(path: Path, kind: str = "oct") -> dict[str, str]:
    return {**settings(k=jwks(made(kind))), "STATE": f"file:{path}"}


def editor(verb: str, app: dict[str, str], **options: Any) -> Any:
    return editing.editor(verb, app, key="k", store={"setting": "STATE"}, **options)


def chainer(app: dict[str, str], **options: Any) -> Any:
    return editor("chain", app, **{"sequence": "session", **options})


def verifier(app: dict[str, str], **options: Any) -> Any:
    return editor("verify-chain", app, **options)


def order(number: int, body: bytes | None = None, origin: Origin = WEST, session: str = "s") -> Message:
    content = f"order {number}".encode() if body is None else body
    return message(number, body=content, session_id=session, origin=origin)


def edit(each: BatchEditor, messages: Sequence[Message]) -> Sequence[EditedTogether]:
    return editing.answers(each, *messages)


def linked(each: BatchEditor, messages: Sequence[Message]) -> list[Message]:
    made = []
    for result in edit(each, messages):
        assert isinstance(result, tuple), result
        made.append(result[0])
    return made


def arrived(messages: Sequence[Message], first: int = 1) -> list[Message]:
    """Return what the far end receives of messages that were sent in this order."""
    received = []
    for number, each in enumerate(messages, first):
        copy = each.copy()
        copy.arrival = Arrival(EAST, number, None, 1_900_000_000_000 + number)
        received.append(copy)
    return received


def settle(each: BatchEditor, messages: Sequence[Message], outcome: Outcome = Outcome.SENT) -> None:
    asyncio.run(each.settled([(one.arrival, outcome) for one in messages], timeout_seconds=5))


def carried(each: BatchEditor, messages: Sequence[Message]) -> list[str]:
    """Return the verdicts on messages of one batch, which are then all settled."""
    verdicts = [verdict(result) for result in edit(each, messages)]
    settle(each, messages)
    return verdicts


def verdict(result: EditedTogether) -> str:
    match result:
        case MessageRejected():
            return result.reason
        case Withheld():
            return "withheld"
        case _:
            return "passes"
