"""Messages that are removed and not sent."""

import asyncio
from collections.abc import Mapping, Sequence

from shared.protocols import Outgoing
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.evidence import Answer, Question
from shared.resend.ledger import SENT, Ledger, MemoryStore
from shared.resend.letters import Letter
from shared.resend.places import Destination

_NOWHERE = Destination("", "", "")


class Removal:
    """
    Sends nothing, so that a run only removes its messages; it is a `Delivery`.

    A run that was interrupted has left what it has not removed, so no record and no order are needed.
    """

    keeps_order = begins_with_one = False

    def __init__(self) -> None:
        """Keep a ledger that ends with the run."""
        self.ledger = Ledger(MemoryStore(), "")

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage:  # noqa: ARG002 - nothing is sent
        """Return a message without its content."""
        return PreparedMessage(key, _NOWHERE, Outgoing(b"", None, None, None))

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Accept all of them."""
        keys = [message.key for message in messages]
        await self.ledger.note(SENT, keys, str(_NOWHERE))
        return Attempt(keys)

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:  # noqa: ARG002 - nothing is sent
        """Return nothing: no send is ever interrupted."""
        return {}

    async def end(self) -> None:
        """Do nothing: there is no target."""
