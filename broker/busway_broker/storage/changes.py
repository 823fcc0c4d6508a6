"""
What has changed in a namespace since the last commit.

Rows are written as they are at the commit: a message that arrives and leaves within one turn of the event loop is never
written.
"""

import json
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence

from busway_broker.core.content import Content
from busway_broker.core.event import Event
from busway_broker.core.message import StoredMessage
from busway_broker.core.sequence_numbers import numbers_path, partition_of
from busway_broker.storage.entities import Record

type _Key = tuple[int, int]

_PLACED = ("messages", "message_ids", "sessions", "events")
_UNUSED_AT_MOST = 200


class Changes:
    """Collects changes until they are written; the `Recorder` of a namespace."""

    def __init__(self, places: Mapping[str, int], next_content: int, copies: Mapping[int, int]) -> None:
        """
        Continue with what is in the database.

        Shape:  *places* are ids by path; *next_content* is the first free id of a content; *copies* counts the
                messages of each content that has more than one.
        """
        self._ids = dict(places)
        self._next_content = next_content
        self._copies = dict(copies)
        # Contents without a message. What is left of them at the end is deleted at the next start.
        self._unused: list[int] = []
        self._next_place = max(places.values(), default=0) + 1
        self._start()

    def _start(self) -> None:
        self._new_places: list[tuple[int, str]] = []
        self._cleared: list[int] = []
        self._stored: dict[_Key, StoredMessage] = {}
        self._updated: dict[_Key, StoredMessage] = {}
        self._removed: dict[_Key, None] = {}
        self._last_numbers: dict[int, int] = {}
        self._message_ids: dict[tuple[int, bytes], int | None] = {}
        self._sessions: dict[tuple[int, str], tuple[bytes | None, int]] = {}
        self._events: list[tuple[int, Event]] = []
        self._dropped: dict[int, int] = {}
        self._entities: dict[str, Record] = {}

    @property
    def are_none(self) -> bool:
        """Return whether there is nothing to write."""
        return not (
            self._stored
            or self._removed
            or self._updated
            or self._events
            or self._last_numbers
            or self._message_ids
            or self._sessions
            or self._dropped
            or self._entities
            or self._cleared
            or self._new_places
        )

    def stored(self, path: str, message: StoredMessage) -> None:
        """Note a new message."""
        number = message.sequence_number
        self._stored[self._id(path), number] = message
        self.numbered(path, number)

    def changed(self, path: str, message: StoredMessage) -> None:
        """Note that the content of a message has changed."""
        key = self._id(path), message.sequence_number
        self._removed[key] = None
        self._stored[key] = message

    def updated(self, path: str, message: StoredMessage) -> None:
        """Note that the delivery count or the state of a message has changed."""
        self._updated[self._id(path), message.sequence_number] = message

    def removed(self, path: str, sequence_number: int) -> None:
        """Note that a message is gone."""
        key = self._id(path), sequence_number
        self._stored.pop(key, None)
        self._updated.pop(key, None)
        self._removed[key] = None

    def numbered(self, path: str, sequence_number: int) -> None:
        """Note that a sequence number has been assigned."""
        partition = partition_of(sequence_number)
        place = self._id(numbers_path(path, partition) if partition else path)
        if sequence_number > self._last_numbers.get(place, 0):
            self._last_numbers[place] = sequence_number

    def seen(self, path: str, message_id: bytes, at: int) -> None:
        """Note a message id for duplicate detection."""
        key = self._id(path), message_id
        self._message_ids.pop(key, None)  # the order of the rows is the order in which ids leave the window
        self._message_ids[key] = at

    def forgotten(self, path: str, message_ids: Iterable[bytes]) -> None:
        """Note that message ids have left the window of duplicate detection."""
        place = self._id(path)
        for message_id in message_ids:
            self._message_ids[place, message_id] = None

    def session_updated(self, path: str, session_id: str, state: bytes | None, at: int) -> None:
        """Note the state of a session."""
        self._sessions[self._id(path), session_id] = state, at

    def appended(self, path: str, events: Sequence[Event]) -> None:
        """Note new events."""
        place = self._id(path)
        self._events += ((place, event) for event in events)

    def dropped(self, path: str, before: int) -> None:
        """Note that the events before a sequence number are gone."""
        self._dropped[self._id(path)] = before

    def cleared(self, path: str) -> None:
        """Note that everything at a path was deleted with its entity; what is noted from now on is of a new one."""
        place = self._id(path)
        self._cleared.append(place)
        self._stored = _without(place, self._stored)
        self._updated = _without(place, self._updated)
        self._removed = _without(place, self._removed)
        self._message_ids = _without(place, self._message_ids)
        self._sessions = _without(place, self._sessions)
        self._events = [event for event in self._events if event[0] != place]
        self._last_numbers.pop(place, None)
        self._dropped.pop(place, None)

    def entity(self, key: str, record: Record) -> None:
        """Note the record of an entity."""
        self._entities[key] = record

    def _id(self, path: str) -> int:
        place = self._ids.get(path)
        if place is None:
            lower = path.lower()
            place = self._ids.get(lower)
            if place is None:
                place = self._ids[lower] = self._next_place
                self._next_place += 1
                self._new_places.append((place, lower))
            self._ids[path] = place
        return place

    def write(self, to: sqlite3.Connection) -> None:
        """Write the changes, within the caller's transaction, and start collecting again."""
        if self._new_places:
            to.executemany("INSERT INTO places VALUES (?, ?, 0)", self._new_places)
        if self._cleared:
            self._write_cleared(to)
        if self._removed:
            self._write_removed(to)
        if self._stored:
            self._write_stored(to)
        if self._updated:
            to.executemany(
                "UPDATE messages SET delivery_count = ?, state = ? WHERE place = ? AND number = ?",
                [(message.delivery_count, message.state, *key) for key, message in self._updated.items()],
            )
        if self._last_numbers:
            to.executemany(
                "UPDATE places SET last_number = max(last_number, ?) WHERE id = ?",
                [(number, place) for place, number in self._last_numbers.items()],
            )
        if self._message_ids:
            self._write_message_ids(to)
        if self._sessions:
            self._write_sessions(to)
        if self._events:
            self._write_events(to)
        if self._dropped:
            to.executemany("DELETE FROM events WHERE place = ? AND number < ?", list(self._dropped.items()))
        if self._entities:
            to.executemany(
                "REPLACE INTO entities VALUES (?, ?)",
                [(key, json.dumps(entity)) for key, entity in self._entities.items()],
            )
        self._start()

    def _write_cleared(self, to: sqlite3.Connection) -> None:
        for place in self._cleared:
            for (content,) in to.execute("SELECT content FROM messages WHERE place = ?", (place,)).fetchall():
                self._release(content)
            for table in _PLACED:
                to.execute(f"DELETE FROM {table} WHERE place = ?", (place,))  # noqa: S608 - names of our own tables
            to.execute("UPDATE places SET last_number = 0 WHERE id = ?", (place,))

    def _write_removed(self, to: sqlite3.Connection) -> None:
        for key in self._removed:
            for (content,) in to.execute(
                "DELETE FROM messages WHERE place = ? AND number = ? RETURNING content", key
            ).fetchall():
                self._release(content)
        if len(self._unused) >= _UNUSED_AT_MOST:
            to.executemany("DELETE FROM contents WHERE id = ?", [(each,) for each in self._unused])
            self._unused.clear()

    def _release(self, content: int) -> None:
        left = self._copies.get(content, 1) - 1
        if left > 1:
            self._copies[content] = left
        else:
            self._copies.pop(content, None)
            if left == 0:
                self._unused.append(content)

    def _write_stored(self, to: sqlite3.Connection) -> None:
        ids: dict[int, int] = {}
        contents = []
        messages = []
        for (place, number), message in self._stored.items():
            content = message.content
            content_id = ids.get(id(content))
            if content_id is None:
                content_id = ids[id(content)] = self._next_content
                self._next_content += 1
                contents.append(_content_row(content_id, content))
            else:
                self._copies[content_id] = self._copies.get(content_id, 1) + 1
            messages.append(
                (
                    place,
                    number,
                    content_id,
                    message.enqueue_sequence_number,
                    message.enqueued_time,
                    message.time_to_live,
                    message.delivery_count,
                    message.state,
                )
            )
        to.executemany("INSERT INTO contents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", contents)
        to.executemany("INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", messages)

    def _write_message_ids(self, to: sqlite3.Connection) -> None:
        to.executemany(
            "DELETE FROM message_ids WHERE place = ? AND message_id = ?",
            [key for key, at in self._message_ids.items() if at is None],
        )
        to.executemany(
            "REPLACE INTO message_ids (place, message_id, seen_at) VALUES (?, ?, ?)",
            [(*key, at) for key, at in self._message_ids.items() if at is not None],
        )

    def _write_sessions(self, to: sqlite3.Connection) -> None:
        to.executemany(
            "DELETE FROM sessions WHERE place = ? AND session_id = ?",
            [key for key, (state, _) in self._sessions.items() if state is None],
        )
        to.executemany(
            "REPLACE INTO sessions VALUES (?, ?, ?, ?)",
            [(*key, state, at) for key, (state, at) in self._sessions.items() if state is not None],
        )

    def _write_events(self, to: sqlite3.Connection) -> None:
        to.executemany(
            "INSERT INTO events (place, number, offset, enqueued_time, annotation_count, partition_key, checksum, "
            "annotations, bare) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    place,
                    event.sequence_number,
                    event.offset,
                    event.enqueued_time,
                    event.content.annotation_count,
                    event.content.partition_key,
                    checksum(event.content.annotations, event.content.bare),
                    event.content.annotations,
                    event.content.bare,
                )
                for place, event in self._events
            ],
        )


def _content_row(content_id: int, content: Content) -> tuple[object, ...]:
    return (
        content_id,
        content.header,
        content.annotation_count,
        content.message_id,
        content.session_id,
        content.partition_key,
        content.time_to_live,
        content.scheduled_enqueue_time,
        checksum(content.annotations, content.bare, content.delivery_annotations),
        content.annotations,
        content.bare,
        content.delivery_annotations,
    )


def _without[Key, Change](place: int, changes: dict[tuple[int, Key], Change]) -> dict[tuple[int, Key], Change]:
    return {key: change for key, change in changes.items() if key[0] != place}


def checksum(annotations: bytes, bare: bytes, delivery_annotations: bytes = b"") -> int:
    """Return the checksum of a content: SQLite has none, and a damaged body must not be delivered."""
    return zlib.crc32(delivery_annotations, zlib.crc32(bare, zlib.crc32(annotations)))
