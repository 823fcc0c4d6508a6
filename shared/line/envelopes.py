"""
The envelopes of a task's source: each is replaced by its messages.

1. Each message is then independent: it is filtered, rejected and remembered by itself. Only its position, its lock and
   its place in the journal are those of the envelope.
2. The event and its content identify a message, in any envelope: two events with one source and id and different
   contents are two messages. A message that is in the batch twice is processed once.
3. `rejects` gets an envelope with only the rejected message, so that a replay does not affect the others.
"""

from collections.abc import Awaitable
from copy import replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

from shared.codecs.envelope import Event, encode_event, envelope_in, open_envelope
from shared.errors import MessageRejected
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch, Room, then
from shared.line.failure import Failure
from shared.line.item import Carrier, Item, Original
from shared.line.rejection import requested_share
from shared.line.states import Stage, State
from shared.line.task import Task
from shared.message.arrival import CarriedEvent
from shared.message.message import Message
from shared.time_limit import TimeLimit

# An envelope holds many messages, which are read one after the other.
_MORE_TIME = 10


class Envelopes:
    """Opens the envelopes of one task."""

    def __init__(self, task: Task, accepted: AcceptedSends, failure: Failure) -> None:
        """Recognize in *accepted* what an earlier delivery has decided."""
        self._task = task
        self._accepted = accepted
        self._failure = failure
        self._time_limit = TimeLimit(_MORE_TIME * task.edit_seconds)

    def open(self, batch: Batch) -> Awaitable[None] | None:
        """
        Replace each envelope of *batch* by its messages; reject a message whose body is not an envelope.

        If the source has some messages that are none, they are taken as they are, and an envelope may be in base64.
        Envelopes for whose messages there is no room are postponed. Returns what to await if it takes long.
        """
        for item, _ in batch.waiting():
            known = item.known(self._accepted)
            if known is not None:
                item.recall(known, self._accepted)
        room = Room(self._task.batch_bytes)
        opened: dict[Original, list[Item]] = {}

        def put(item: Item, result: _Opened | Exception | None) -> None:
            if isinstance(result, _Opened):
                if not room.takes(item, (message for _, _, message in result.events)) and not batch.is_first(item):
                    batch.postpone(item)
                    return
                share = requested_share(item.content, item.arrival, self._task.name)
                carrier = Carrier(item.content, len(result.events), result.empty, share)
                opened[item.original] = [item.opened(*event, carrier) for event in result.events]
            elif isinstance(result, MessageRejected):
                self._failure.reject(batch, item, result, Stage.RECEIVED)
            elif result is not None:
                raise result

        waiting = ((item, message) for item, message in batch.waiting() if item.original in batch.parts)
        open_one = _opened_if_envelope if self._task.opens_some else _opened
        return then(self._time_limit.run(open_one, waiting, put), partial(_put_all, batch, opened))


def _put_all(batch: Batch, opened: dict[Original, list[Item]]) -> None:
    """Put what was in the envelopes in their place."""
    first = next(iter(batch.parts), None)
    if first is not None and first in opened:
        batch.decided = batch.skipped
        del opened[first][: batch.skipped]
    delivered, batch.parts = batch.parts, {}
    for original, [item] in delivered.items():
        if item.leader is not None and item.leader.original in opened:
            opened[original] = [item.repeated(other) for other in opened[item.leader.original]]
        for found in opened.get(original, (item,)):
            batch.parts[found.original] = [found]
    _find_copies(batch)


def _find_copies(batch: Batch) -> None:
    """Let copies of a message share the result of the first, unless a replay requests another part."""
    firsts: dict[object, Item] = {}
    for item in batch.items:
        if item.state is State.RECEIVED and item.event_key is not None:
            requested = None if item.original.carrier is None else item.original.carrier.share
            first = firsts.setdefault((item.event_key, requested), item)
            if first is not item:
                item.repeat(first, State.COPIED)


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
        digest = blake2b(event.content, digest_size=32).hexdigest()
        identity = CarriedEvent(event.source, event.id, event.kind, digest)
        message = Message.contained(event.content, replace(envelope.arrival, event=identity))
        events.append((identity, event.content, message))
    empty = envelope.copy()
    empty.sections.body = b""
    return _Opened(events, empty)


def envelope_body(message: Message) -> bytes:
    """Return the body of an envelope; raises MessageRejected for a body that is not data."""
    body = message.body
    if body is None:
        raise MessageRejected("NotAnEnvelope", "body is a value or a sequence, expected CloudEvents as JSON")
    return body


def to_set_aside(original: Original) -> bytes:
    """Return the message for `rejects`: as it was received; from an envelope with several, only this one."""
    carrier, event = original.carrier, original.arrival.event
    if carrier is None or event is None:
        return original.content
    if carrier.messages == 1:
        return carrier.content
    alone = carrier.empty.copy()
    alone.body = encode_event(Event(event.source, event.id, event.kind, original.content)).encode()
    return alone.encode()
