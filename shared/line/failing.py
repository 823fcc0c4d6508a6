"""
The messages that fail with a rejected one before the send, so that none is lost and no replay sends one twice.

1. The parts of a message fail together, and the message is rejected once, as it was received.
2. A joined message is not sent if one of the parts in it is rejected: the messages of all its parts are rejected, each
   as it was received. The same applies to messages that are linked to those.
3. A part that an earlier delivery has sent keeps its result. The other parts are then rejected one by one.
"""

from shared.line.accepted_sends import AcceptedSends, key_of
from shared.line.batch import Batch
from shared.line.item import Item
from shared.line.states import KNOWN_BEFORE, Rejection
from shared.protocols import Joined, Outcome


def reject(batch: Batch, item: Item, rejection: Rejection, accepted: AcceptedSends) -> None:
    """Reject the message of *item* before the send, and every message that is linked to it."""
    # An unreadable or unsplit message may have its result from an earlier delivery.
    known = item.known(accepted)
    linked = _linked(batch, item)
    item.followers = ()
    _reject_whole(batch, item, rejection)
    if known is not None:
        item.recall(known, accepted)
    else:
        item.fail(rejection)
    for each in linked:
        _reject_whole(batch, each, rejection)
        each.followers = ()
        each.join(item, Joined(item.index), rejection)


def _reject_whole(batch: Batch, item: Item, rejection: Rejection) -> None:
    """Let *item* represent its whole message, unless parts of it have been sent before."""
    batch.rejected.add(item.index)
    parts = batch.parts[item.index]
    if len(parts) == 1:
        if item.part is None:
            # A replay that fails again is still a replay of one part.
            item.part = item.requested_part(rejection.task)
        return
    for part in parts:
        if part is not item and part.outcome is None:
            part.followers = ()
            part.fail(rejection)
    if any(part.state in KNOWN_BEFORE for part in parts):
        return
    batch.parts[item.index] = [item]
    item.part = item.requested_part(rejection.task)
    item.key = key_of(item.arrival)


def _linked(batch: Batch, item: Item) -> list[Item]:
    """Return an item of each other message that must be sent or rejected together with that of *item*."""
    found: dict[int, Item] = {}
    waiting = [item.index]
    seen = {item.index}
    while waiting:
        for part in batch.parts[waiting.pop()]:
            neighbours = list(part.followers)
            if part.leader is not None and part.joined is not None and part.joined.outcome is Outcome.SENT:
                neighbours.append(part.leader)
            for each in neighbours:
                is_postponed = each.index >= len(batch.parts)
                if is_postponed or each.index in seen or each.index in batch.rejected or each.outcome is not None:
                    continue
                seen.add(each.index)
                found[each.index] = each
                waiting.append(each.index)
    return [found[index] for index in sorted(found)]
