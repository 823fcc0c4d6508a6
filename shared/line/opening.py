"""
Opens envelopes: replaces each envelope by its messages.

1. Each message is then independent: it is filtered, rejected and remembered by itself. Only its delivery, its lock and
   its place in the journal are those of the envelope.
2. The event identifies a message, in any envelope. A message that is in the batch twice is processed once.
3. `rejects` gets an envelope with only the rejected message, so that a replay does not affect the others.
"""

from collections.abc import Awaitable
from copy import replace
from typing import NamedTuple

from shared.codecs.envelope import Event, encode_event, envelope_in, open_envelope
from shared.errors import MessageRejected
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch
from shared.line.failing import reject
from shared.line.item import Carrier, Item
from shared.line.rejection import requested_part
from shared.line.room import Room
from shared.line.states import Rejection, Stage, State
from shared.message.arrival import CarriedEvent
from shared.message.message import Message
from shared.time_limit import TimeLimit


def open_envelopes(
    batch: Batch, task: str, accepted: AcceptedSends, time_limit: TimeLimit, room: Room, *, some: bool = False
) -> Awaitable[None] | None:
    """
    Replace each envelope of *batch* by its messages; reject a message whose body is not an envelope.

    With *some*, such a message is taken as it is, and an envelope may be in base64.

    Envelopes for whose messages there is no *room* are postponed. Returns what to await if it takes long.
    """
    for item, _ in batch.waiting():
        known = item.known(accepted)
        if known is not None:
            item.recall(known, accepted)
    opened: dict[int, list[Item]] = {}

    def put(item: Item, result: _Opened | Exception | None) -> None:
        if result is None:
            return
        if isinstance(result, _Opened):
            if not room.takes(item, (message for _, _, message in result.events)) and item.index > 0:
                batch.postpone(item.index)
                return
            part = requested_part(item.content, item.arrival, task)
            carrier = Carrier(item.content, len(result.events), result.empty, part)
            opened[item.index] = [item.opened(*each, carrier) for each in result.events]
        elif isinstance(result, MessageRejected):
            reject(batch, item, Rejection(result, Stage.RECEIVED, task), accepted)
        else:
            raise result

    async def wait(pending: Awaitable[None]) -> None:
        await pending
        _put_all(batch, opened)

    waiting = ((item, message) for item, message in batch.waiting() if item.index < len(batch.parts))
    pending = time_limit.run(_opened_if_envelope if some else _opened, waiting, put)
    if pending is not None:
        return wait(pending)
    _put_all(batch, opened)
    return None


def _put_all(batch: Batch, opened: dict[int, list[Item]]) -> None:
    """Put what was in the envelopes in their place."""
    for item in batch.items:
        if item.state is State.REPEATED and item.first is not None and item.first.index in opened:
            opened[item.index] = [item.repeated(first) for first in opened[item.first.index]]
    if batch.skipped and 0 in opened:
        batch.decided, opened[0] = opened[0][: batch.skipped], opened[0][batch.skipped :]
        for index, item in enumerate(batch.decided, -batch.skipped):
            item.index = index
    _place(batch, opened)
    _repeat(batch)


class _Opened(NamedTuple):
    """The messages of an envelope with their events and bytes, and the envelope without its body."""

    events: list[tuple[CarriedEvent, bytes, Message]]
    empty: Message


def _opened_if_envelope(message: Message) -> _Opened | None:
    content = envelope_in(message.body or b"")
    return None if content is None else _opened(message, content)


def _opened(envelope: Message, content: bytes | None = None) -> _Opened:
    """Return the messages of an envelope; raises MessageRejected if one of them cannot be read."""
    events = []
    for event in open_envelope(envelope_body(envelope) if content is None else content):
        identity = CarriedEvent(event.source, event.id, event.kind)
        message = Message.contained(event.content, replace(envelope.arrival, event=identity))
        events.append((identity, event.content, message))
    empty = envelope.copy()
    empty.sections.body = b""
    return _Opened(events, empty)


def _place(batch: Batch, opened: dict[int, list[Item]]) -> None:
    """Set the position of each item among the messages of the batch."""
    parts: list[list[Item]] = []
    rejected = set()
    for [item] in batch.parts:
        before = item.index
        if before in batch.rejected:
            rejected.add(len(parts))
        for each in opened.get(before, (item,)):
            each.index = len(parts)
            parts.append([each])
    batch.parts, batch.rejected = parts, rejected


def _repeat(batch: Batch) -> None:
    """Let repeated messages share the result of the first, unless a replay requests another part."""
    firsts: dict[object, Item] = {}
    batch.repeated.clear()
    for item in batch.items:
        if item.state is State.RECEIVED and item.event_key is not None:
            requested = None if item.carrier is None else item.carrier.part
            first = firsts.setdefault((item.event_key, requested), item)
            if first is not item:
                item.repeat(first, is_copy=True)
        if item.state is State.REPEATED:
            batch.has_repeats = True
            batch.repeated.append(item.index)


def envelope_body(message: Message) -> bytes:
    """Return the body of an envelope; raises MessageRejected for a body that is not data."""
    body = message.body
    if body is None:
        raise MessageRejected("NotAnEnvelope", "body is a value or a sequence, expected CloudEvents as JSON")
    return body


def to_set_aside(item: Item) -> bytes:
    """Return the message for `rejects`: as it was received; from an envelope with several, only this one."""
    carrier, event = item.carrier, item.arrival.event
    if carrier is None or event is None:
        return item.content
    if carrier.messages == 1:
        return carrier.content
    alone = carrier.empty.copy()
    alone.body = encode_event(Event(event.source, event.id, event.kind, item.content)).encode()
    return alone.encode()
