"""The journal's records of what was decided about messages."""

from shared.errors import MessageRejected
from shared.line.item import Item
from shared.line.sending import place_of
from shared.line.states import OUTCOMES, Stage, State
from shared.protocols import Outcome, Record


def record_of(task: str, item: Item, *, has_order: bool = True) -> Record:
    """Return the record of an *item* whose state is terminal; without *has_order* it names no key that has an order."""
    outcome, outgoing = OUTCOMES[item.state], item.outgoing
    return Record(
        task,
        item.arrival,
        outgoing.message_id if outgoing else _id_of(item),
        outcome,
        place_of(item),
        item.reason,
        None if outcome is Outcome.SENT else _stage_of(item),
        None if outgoing is None or not has_order else outgoing.session_id or outgoing.partition_key,
        item.number,
        item.is_remembered,
        item.arrived,
        item.departed,
        outcome is Outcome.SENT and (item.joined is not None or item.is_copy),
        item.state is State.SENT and item.target is not None and item.target.binding is not None,
    )


def _id_of(item: Item) -> str | None:
    """Return the id of a message that is not sent now, or None if it is not text or cannot be read."""
    if item.message is None:
        return None
    try:
        identity = item.message.message_id
    except MessageRejected:
        return None
    return identity.payload if identity is not None and isinstance(identity.payload, str) else None


def _stage_of(item: Item) -> Stage | None:
    return item.stage if item.rejection is None else item.rejection.stage
