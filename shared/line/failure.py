"""
The messages that fail with a rejected one before the send, so that none is lost and no replay sends one twice.

1. The parts of a message fail together, and the message is rejected once, as it was received.
2. A joined message is not sent if one of the parts in it is rejected: the messages of all its parts are rejected, each
   as it was received. The same applies to messages that are linked to those.
3. A part that an earlier delivery has sent keeps its result. The other parts are then rejected one by one.
"""

from dataclasses import dataclass

from shared.errors import MessageRejected
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch
from shared.line.item import Item, Original
from shared.line.states import KNOWN_BEFORE, Rejection, Stage
from shared.protocols import Joined, Outcome


@dataclass(frozen=True)
class Failure:
    """The failures of one task's messages before the send."""

    task: str
    accepted: AcceptedSends
    """Knows the messages that have their result from an earlier delivery."""

    def reject(self, batch: Batch, item: Item, error: MessageRejected, stage: Stage) -> None:
        """Reject the message of *item*, and every message that is linked to it."""
        # An unreadable or unsplit message may have its result from an earlier delivery.
        known = item.known(self.accepted)
        rejection = Rejection(error, stage, self.task)
        linked = _linked(batch, item)
        item.followers = ()
        self._reject_whole(batch, item, rejection)
        if known is not None:
            item.recall(known, self.accepted)
        else:
            item.fail(rejection)
        for other in linked:
            self._reject_whole(batch, other, rejection)
            other.followers = ()
            other.join(item, Joined(0), rejection)

    def _reject_whole(self, batch: Batch, item: Item, rejection: Rejection) -> None:
        """Let *item* represent its whole message, unless parts of it have been sent before."""
        parts = batch.parts[item.original]
        if len(parts) == 1:
            if item.part is None:
                # A replay that fails again is still a replay of one part.
                item.part, item.only_for = item.original.requested_share(self.task)
            return
        for part in parts:
            if part is not item and part.outcome is None:
                part.followers = ()
                part.fail(rejection)
        if any(part.state in KNOWN_BEFORE for part in parts):
            return
        batch.parts[item.original] = [item]
        item.part, item.only_for = item.original.requested_share(self.task)
        item.key = item.arrival.key


def _linked(batch: Batch, item: Item) -> list[Item]:
    """Return an item of each other message that must be sent or rejected together with that of *item*."""
    found: dict[Original, Item] = {}
    waiting = [item.original]
    while waiting:
        for part in batch.parts[waiting.pop()]:
            neighbours = list(part.followers)
            if part.leader is not None and part.joined is not None and part.joined.outcome is Outcome.SENT:
                neighbours.append(part.leader)
            for other in neighbours:
                original = other.original
                is_undecided = original in batch.parts and other.rejection is None and other.outcome is None
                if is_undecided and original is not item.original and original not in found:
                    found[original] = other
                    waiting.append(original)
    return sorted(found.values(), key=lambda other: other.original.position)
