"""
How messages are replayed: through the pipeline of the task, with a mark that names the replay and the message.

Any producer can write such a mark. So only one with the proof of the ledger shows that a message was sent.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from cli.replay.plan import Plan
from shared.amqp import map_section, sections
from shared.amqp.values import string
from shared.ends.service_bus.peek import CannotBePeeked
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.replay import REPLAY
from shared.protocols import Outgoing
from shared.resend.delivery import PreparedMessage
from shared.resend.evidence import Answer, Question
from shared.resend.ledger import Ledger
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.pipeline_delivery import PipelineDelivery
from shared.resend.places import place_at
from shared.tasks.files import Configuration
from shared.tasks.routes import Target

_APPLICATION_PROPERTIES = b"\x00\x53\x74"


class _Copy(NamedTuple):
    """What a target has of a message: the key of the message, and the digest of the body."""

    key: str
    body: bytes


class ReplayDelivery(PipelineDelivery):
    """Sends the messages of one replay."""

    def __init__(self, plan: Plan, ledger: Ledger, configuration: Configuration, settings: Mapping[str, str]) -> None:
        super().__init__(ledger)
        self._plan = plan
        self._configuration = configuration
        self._settings = settings
        self._there: dict[tuple[str, str], Counter[_Copy]] = {}
        self._again: set[str] = set()
        self._seen: set[str] = set()

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage:
        """Return the message with the mark of the replay, and with a new id if that is wanted."""
        raw = sections.split(letter.content)
        mark = f"{self._plan.name}/{key}"
        if self._plan.new_ids:
            message = Message(raw, Arrival(letter.origin) if letter.message is None else letter.message.arrival)
            message.message_id = string(self.ledger.proof(f"id of {mark}"))
        raw.application_properties = map_section.edited(
            raw.application_properties, _APPLICATION_PROPERTIES, {REPLAY: string(self.ledger.signed(mark))}, string
        )
        return self.for_task(self._plan.task, key, raw.encode(), letter.origin.partition)

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        """Look for the marks of messages in the queues of the task; all others may be sent twice."""
        unclear = await super().answers(to, questions, stopping)
        task = self.tasks[self._plan.task]
        for target in (*task.targets(), *([] if task.rejects is None else [task.rejects])):
            self._there[target.connection, target.entity] = await self._marked(target)
        return unclear

    @property
    def again(self) -> int:
        """How many messages may arrive twice."""
        return len(self._again) + self.repeated

    @property
    def seen(self) -> int:
        """How many messages an interrupted run had sent, as a look at the targets has shown."""
        return len(self._seen - self._again)

    def has_arrived(self, alias: str, entity: str, message: Outgoing) -> bool:
        """Return whether a queue has a message, or a part of one, that an interrupted run may have sent."""
        if not self.doubtful:
            return False
        origin = Origin(self._configuration.site(alias), entity)
        copy = self._copy(Letter(message.content, origin))
        if copy is None or copy.key not in self.doubtful:
            return False
        there = self._there.get((alias, entity), Counter())
        if not there[copy]:
            self._again.add(copy.key)
            return False
        self._seen.add(copy.key)
        there[copy] -= 1  # parts of one message may be equal
        return True

    async def _marked(self, target: Target) -> Counter[_Copy]:
        """Return what a queue has of this replay; other targets do not show what they have."""
        found = Counter[_Copy]()
        connection = self._configuration.connections[target.connection]
        if target.queue is None or connection.setting is None or not connection.is_namespace:
            return found
        place = place_at(target.connection, target.queue, self._configuration)
        async with contextlib.aclosing(peek(place, self._settings)) as letters:
            with contextlib.suppress(CannotBePeeked):  # they may be sent twice
                async for letter, _ in letters:
                    copy = self._copy(letter)
                    if copy is not None:
                        found[copy] += 1
        return found

    def _copy(self, letter: Letter) -> _Copy | None:
        signed, prefix = letter.text(REPLAY), f"{self._plan.name}/"
        mark = None if signed is None else self.ledger.text_of(signed)
        if mark is None or not mark.startswith(prefix):
            return None
        body = blake2b(sections.split(letter.content).body, digest_size=16)
        return _Copy(mark.removeprefix(prefix), body.digest())
