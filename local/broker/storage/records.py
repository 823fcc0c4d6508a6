"""
Records: what happened, as bytes.

Shape:  a byte that says what, then fixed fields, then lengths and bytes, all big-endian. Paths are written once and
        numbered. A message whose content is the very one of the message before it does not repeat it: the copies of a
        message in the subscriptions of a topic share theirs.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Final

from local.broker.core.content import Content
from local.broker.core.event import Event, EventContent
from local.broker.core.message import State as MessageState
from local.broker.core.message import StoredMessage
from local.broker.storage.state import Place, State

_PLACE: Final = 1
_STORED: Final = 2
_UPDATED: Final = 3
_REMOVED: Final = 4
_NUMBERED: Final = 5
_SEEN: Final = 6
_SESSION: Final = 7
_EVENT: Final = 8
_ENTITY: Final = 9
_CLEARED: Final = 10

_NONE = -1
_MESSAGE = Struct(">BIQQqqIB?")
_CONTENT = Struct(">IHIIIiiqq")
_UPDATE = Struct(">BIQIB")
_NUMBER = Struct(">BIQ")
_SEEN_AT = Struct(">BIqI")
_SESSION_AT = Struct(">BIqHi")
_EVENT_AT = Struct(">BIQQqIHIi")
_LENGTH = Struct(">BI")
_AT = Struct(">BI")


class RecordWriter:
    """Collects records until they are taken, as the core tells of changes; it is the `Recorder` of a namespace."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._numbers: dict[str, int] = {}
        self._content: Content | None = None

    def take(self) -> bytes:
        """Return the records there are, and forget them."""
        payload = b"".join(self._parts)
        self._parts.clear()
        return payload

    def restart(self) -> None:
        """Go on in another log, which knows nothing of what was written to the one before."""
        self._parts.clear()
        self._numbers.clear()
        self._content = None

    def stored(self, path: str, message: StoredMessage) -> None:
        """Write a message."""
        content = message.content
        is_repeated = content is self._content
        self._parts.append(
            _MESSAGE.pack(
                _STORED,
                self._number(path),
                message.sequence_number,
                message.enqueue_sequence_number,
                message.enqueued_time,
                _or_none(message.time_to_live),
                message.delivery_count,
                message.state,
                is_repeated,
            )
        )
        if not is_repeated:
            self._content = content
            self._parts.append(_content_bytes(content))

    def updated(self, path: str, message: StoredMessage) -> None:
        """Write the delivery count and state of a message."""
        self._parts.append(
            _UPDATE.pack(_UPDATED, self._number(path), message.sequence_number, message.delivery_count, message.state)
        )

    def removed(self, path: str, sequence_number: int) -> None:
        """Write that a message is gone."""
        self._parts.append(_NUMBER.pack(_REMOVED, self._number(path), sequence_number))

    def numbered(self, path: str, sequence_number: int) -> None:
        """Write that a sequence number has been given."""
        self._parts.append(_NUMBER.pack(_NUMBERED, self._number(path), sequence_number))

    def seen(self, path: str, message_id: bytes, at: int) -> None:
        """Write a message id."""
        self._parts.append(_SEEN_AT.pack(_SEEN, self._number(path), at, len(message_id)) + message_id)

    def session_updated(self, path: str, session_id: str, state: bytes | None, at: int) -> None:
        """Write the state of a session."""
        name = session_id.encode()
        length = _NONE if state is None else len(state)
        self._parts.append(
            _SESSION_AT.pack(_SESSION, self._number(path), at, len(name), length) + name + (state or b"")
        )

    def appended(self, path: str, events: Sequence[Event]) -> None:
        """Write events."""
        number = self._number(path)
        for event in events:
            content = event.content
            key = None if content.partition_key is None else content.partition_key.encode()
            self._parts.append(
                _EVENT_AT.pack(
                    _EVENT,
                    number,
                    event.sequence_number,
                    event.offset,
                    event.enqueued_time,
                    len(content.annotations),
                    content.annotation_count,
                    len(content.bare),
                    _NONE if key is None else len(key),
                )
            )
            self._parts += (content.annotations, content.bare, key or b"")

    def cleared(self, path: str) -> None:
        """Write that all that was at a path is gone with its entity."""
        self._parts.append(_AT.pack(_CLEARED, self._number(path)))

    def entity(self, key: str, data: dict[str, object]) -> None:
        """Write what an entity is now."""
        name, text = key.encode(), json.dumps(data, separators=(",", ":")).encode()
        self._parts.append(_LENGTH.pack(_ENTITY, len(name)) + name + len(text).to_bytes(4) + text)

    def _number(self, path: str) -> int:
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self._numbers)
            name = path.lower().encode()
            self._parts.append(_LENGTH.pack(_PLACE, len(name)) + name)
        return number


def _or_none(value: int | None) -> int:
    return _NONE if value is None else value


def _content_bytes(content: Content) -> bytes:
    session_id = None if content.session_id is None else content.session_id.encode()
    partition_key = None if content.partition_key is None else content.partition_key.encode()
    lengths = _CONTENT.pack(
        len(content.header),
        content.annotation_count,
        len(content.annotations),
        len(content.bare),
        len(content.message_id),
        _NONE if session_id is None else len(session_id),
        _NONE if partition_key is None else len(partition_key),
        _or_none(content.time_to_live),
        _or_none(content.scheduled_enqueue_time),
    )
    return b"".join(
        (
            lengths,
            content.header,
            content.annotations,
            content.bare,
            content.message_id,
            session_id or b"",
            partition_key or b"",
        )
    )


def read_records(payloads: Iterable[bytes]) -> State:
    """Return what the records in *payloads* add up to."""
    reader = _RecordReader()
    for payload in payloads:
        reader.read(payload)
    return reader.state


class _RecordReader:
    """Records are trusted: their checksums say that they are what was written."""

    def __init__(self) -> None:
        self.state = State()
        self._places: list[Place] = []
        self._content: Content | None = None
        self._readers: dict[int, Callable[[bytes, int], int]] = {
            _PLACE: self._place,
            _STORED: self._stored,
            _UPDATED: self._updated,
            _REMOVED: self._removed,
            _NUMBERED: self._numbered,
            _SEEN: self._seen,
            _SESSION: self._session,
            _EVENT: self._event,
            _ENTITY: self._entity,
            _CLEARED: self._cleared,
        }

    def read(self, payload: bytes) -> None:
        position = 0
        while position < len(payload):
            position = self._readers[payload[position]](payload, position)

    def _place(self, data: bytes, position: int) -> int:
        _, length = _LENGTH.unpack_from(data, position)
        name, position = _bytes(data, position + _LENGTH.size, length)
        self._places.append(self.state.place(name.decode()))
        return position

    def _stored(self, data: bytes, position: int) -> int:
        _, place, number, enqueue_number, enqueued_time, time_to_live, count, state, is_repeated = _MESSAGE.unpack_from(
            data, position
        )
        position += _MESSAGE.size
        if not is_repeated:
            self._content, position = _read_content(data, position)
        assert self._content is not None  # noqa: S101 - the first message of a log has its content with it
        at = self._places[place]
        at.messages[number] = StoredMessage(
            self._content,
            number,
            enqueue_number,
            enqueued_time,
            _none_or(time_to_live),
            delivery_count=count,
            state=MessageState(state),
        )
        at.last_number = max(at.last_number, number)
        return position

    def _updated(self, data: bytes, position: int) -> int:
        _, place, number, count, state = _UPDATE.unpack_from(data, position)
        message = self._places[place].messages.get(number)
        if message is not None:  # it may have been cleared with its entity
            message.delivery_count, message.state = count, MessageState(state)
        return position + _UPDATE.size

    def _removed(self, data: bytes, position: int) -> int:
        _, place, number = _NUMBER.unpack_from(data, position)
        self._places[place].messages.pop(number, None)
        return position + _NUMBER.size

    def _numbered(self, data: bytes, position: int) -> int:
        _, place, number = _NUMBER.unpack_from(data, position)
        self._places[place].last_number = max(self._places[place].last_number, number)
        return position + _NUMBER.size

    def _seen(self, data: bytes, position: int) -> int:
        _, place, at, length = _SEEN_AT.unpack_from(data, position)
        message_id, position = _bytes(data, position + _SEEN_AT.size, length)
        seen = self._places[place].seen
        seen.pop(message_id, None)  # one that came again after its window goes to the end
        seen[message_id] = at
        return position

    def _session(self, data: bytes, position: int) -> int:
        _, place, at, name_length, length = _SESSION_AT.unpack_from(data, position)
        name, position = _bytes(data, position + _SESSION_AT.size, name_length)
        sessions = self._places[place].sessions
        if length == _NONE:
            sessions.pop(name.decode(), None)
            return position
        state, position = _bytes(data, position, length)
        sessions[name.decode()] = state, at
        return position

    def _event(self, data: bytes, position: int) -> int:
        _, place, number, offset, enqueued_time, annotations_length, count, bare_length, key_length = (
            _EVENT_AT.unpack_from(data, position)
        )
        annotations, position = _bytes(data, position + _EVENT_AT.size, annotations_length)
        bare, position = _bytes(data, position, bare_length)
        key, position = _text_or_none(data, position, key_length)
        content = EventContent(annotations, count, bare, key)
        self._places[place].events.append(Event(content, number, offset, enqueued_time))
        return position

    def _cleared(self, data: bytes, position: int) -> int:
        _, place = _AT.unpack_from(data, position)
        self._places[place].clear()
        return position + _AT.size

    def _entity(self, data: bytes, position: int) -> int:
        _, length = _LENGTH.unpack_from(data, position)
        key, position = _bytes(data, position + _LENGTH.size, length)
        text, position = _bytes(data, position + 4, int.from_bytes(data[position : position + 4]))
        self.state.entities[key.decode()] = json.loads(text)
        return position


def _read_content(data: bytes, position: int) -> tuple[Content, int]:
    header_length, count, annotations_length, bare_length, id_length, session_length, key_length, ttl, scheduled = (
        _CONTENT.unpack_from(data, position)
    )
    header, position = _bytes(data, position + _CONTENT.size, header_length)
    annotations, position = _bytes(data, position, annotations_length)
    bare, position = _bytes(data, position, bare_length)
    message_id, position = _bytes(data, position, id_length)
    session_id, position = _text_or_none(data, position, session_length)
    partition_key, position = _text_or_none(data, position, key_length)
    content = Content(
        header, annotations, count, bare, message_id, session_id, partition_key, _none_or(ttl), _none_or(scheduled)
    )
    return content, position


def _bytes(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    return data[position : position + length], position + length


def _text_or_none(data: bytes, position: int, length: int) -> tuple[str | None, int]:
    if length == _NONE:
        return None, position
    text, position = _bytes(data, position, length)
    return text.decode(), position


def _none_or(value: int) -> int | None:
    return None if value == _NONE else value
