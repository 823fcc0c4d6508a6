"""Messages that are removed and not sent."""

from collections.abc import Sequence

from shared.protocols import Outgoing
from shared.resend.delivery import Attempt, Delivery, PreparedMessage
from shared.resend.ledger import SENT, Ledger, MemoryStore
from shared.resend.letters import Letter
from shared.resend.places import Destination

_NOWHERE = Destination("", "", "")


class Removal(Delivery):
    """
    Sends nothing, so that a run only removes its messages.

    A run that was interrupted has left what it has not removed, so no record and no order are needed.
    """

    def __init__(self) -> None:
        """Keep a ledger that ends with the run."""
        super().__init__(Ledger(MemoryStore(), ""))

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage:  # noqa: ARG002 - nothing is sent
        """Return a message without its content."""
        return PreparedMessage(key, _NOWHERE, Outgoing(b"", None, None, None))

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Accept all of them."""
        keys = [message.key for message in messages]
        await self.ledger.note(SENT, keys, str(_NOWHERE))
        return Attempt(keys)
