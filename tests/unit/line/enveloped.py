"""A task with `from: envelope`, and the envelopes that it receives."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shared.amqp.values import Value, long, string, timestamp
from shared.codecs.envelope import Event, encode_event, envelopes
from shared.errors import MessageRejected
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Keep, TimeToLive
from shared.protocols import BatchEditor, Editor, Outcome, Withheld
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import ENQUEUED, delivered

WEST, CARRIER = Origin("west", "orders"), Origin("east", "carrier")


class Line:
    """A task that takes envelopes, with its target, rejects and journal."""

    def __init__(
        self,
        *editors: Editor | BatchEditor,
        output: OutputThatAccepts | None = None,
        origin: Origin = CARRIER,
        ttl: TimeToLive | None = None,
        loop_guard: LoopGuard | None = None,
    ) -> None:
        self.output, self.rejects, self.journal = output or OutputThatAccepts(), OutputThatAccepts(), JournalInMemory()
        router = Router([Route(Target(self.output, "east", "orders"))])
        rejects = Target(self.rejects, "east", "rejected")
        self.task = Task("copy", origin, editors, router, rejects, ttl or Keep(), loop_guard, opens_envelopes=True)
        self.clock = clock_at_delivery()
        self.restart()

    def restart(self) -> None:
        """Forget what was sent, as a new process does."""
        self.line = Pipeline(self.task, self.journal, self.clock, sleep_by(self.clock))

    def run(self, *texts: str, start: int = 1) -> None:
        asyncio.run(self.line.run([carried(text, start + number) for number, text in enumerate(texts)]))

    def replay(self, start: int = 100) -> None:
        """Send everything in `rejects` to the source again, and process it."""
        taken = self.rejects.accepted.pop("rejected", [])
        asyncio.run(
            self.line.run([sent_again(message.content, start + number) for number, message in enumerate(taken)])
        )

    def sent(self) -> list[str | None]:
        return self.output.ids("orders")

    def outcomes(self) -> list[tuple[int | None, int | None, Outcome]]:
        return [(record.arrival.sequence_number, record.part, record.outcome) for record in self.journal.records]


class Alone:
    """An editor of single messages that decides by their ids."""

    name = "alone"

    def __init__(self, verdicts: Mapping[str, str]) -> None:
        self.verdicts = dict(verdicts)

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        identity = message.message_id
        match self.verdicts.get(str(None if identity is None else identity.payload)):
            case "reject":
                raise MessageRejected("Bad", "it is bad")
            case "withhold":
                return Withheld("it is withheld")
            case "split":
                return [part(message, number) for number in range(3)]
            case _:
                return [message]


def part(message: Message, number: int) -> Message:
    made = message.copy()
    identity = message.message_id
    made.message_id = string(f"{'' if identity is None else str(identity.payload)}/{number}")
    return made


def carried(text: str, number: int = 1) -> bytes:
    """Return an envelope as the service delivers it: as the body of a new message."""
    return delivered(number, message_id=None, body=text.encode(), content_type="text/plain")


def sent_again(content: bytes, number: int) -> bytes:
    """Return a message of `rejects` as the source delivers it after an operator has sent it there."""
    message = Message.received(content, CARRIER)
    message.set_annotations({"x-opt-sequence-number": long(number), "x-opt-enqueued-time": timestamp(ENQUEUED)})
    return message.encode()


def event(
    identity: str,
    number: int,
    named: Mapping[str, Value] | None = None,
    *,
    kind: str = "service-bus",
    **fields: Any,
) -> str:
    content = Message.received(delivered(number, named=named, **fields), WEST).encode()
    return encode_event(Event("west/orders", identity, kind, content))


def one_text(*events: str) -> str:
    return envelopes(events, 1_000_000)[0]


def abc() -> str:
    return one_text(event("a", 1), event("b", 2), event("c", 3))
