"""
How messages are replayed: through the pipeline of the task, with a mark that names the replay and the message.

Any producer can write such a mark. So only one with the proof of the ledger shows that a message was sent.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

from cli.replay.plan import Plan
from shared.amqp import map_section, sections
from shared.amqp.values import string
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.message.replay import REPLAY
from shared.resend.delivery import PreparedMessage
from shared.resend.evidence import Answer, Question
from shared.resend.ledger import Ledger
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.pipeline_delivery import PipelineDelivery
from shared.resend.places import Place
from shared.tasks.files import Configuration
from shared.tasks.routes import Target

_APPLICATION_PROPERTIES = b"\x00\x53\x74"


class ReplayDelivery(PipelineDelivery):
    """Sends the messages of one replay."""

    def __init__(self, plan: Plan, ledger: Ledger, configuration: Configuration, settings: Mapping[str, str]) -> None:
        """Send as *plan* says."""
        super().__init__(ledger)
        self._plan = plan
        self._configuration = configuration
        self._settings = settings

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
        """Look for the marks of messages in the queues of the task; what a target may lack is in doubt."""
        task = self.tasks[self._plan.task]
        # Of a message with several targets, one may be in rejects and another may lack it.
        found = set[str]() if task.rejects is None or task.fans_out else await self._marked(task.rejects)
        for route in task.routes:
            is_part = any(
                len(other.targets) > len(route.targets) and all(target in other.targets for target in route.targets)
                for other in task.routes
            )
            if not is_part:
                found |= set[str].intersection(*[await self._marked(target) for target in route.targets])
        unknown = await super().answers(to, [question for question in questions if question.key not in found], stopping)
        return {question.key: Answer.SENT for question in questions if question.key in found} | {**unknown}

    async def _marked(self, target: Target) -> set[str]:
        """Return the keys of the messages that a queue has; other targets do not show what they have."""
        connection = self._configuration.connections[target.connection]
        if target.queue is None or connection.setting is None or not connection.is_namespace:
            return set()
        found = set[str]()
        prefix = f"{self._plan.name}/"
        site = self._configuration.site(target.connection)
        place = Place(target.connection, site, connection.setting, target.queue)
        async with contextlib.aclosing(peek(place, self._settings)) as letters:
            async for letter, _ in letters:
                signed = letter.text(REPLAY)
                mark = None if signed is None else self.ledger.text_of(signed)
                if mark is not None and mark.startswith(prefix):
                    found.add(mark.removeprefix(prefix))
        return found
