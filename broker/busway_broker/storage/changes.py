"""
What has changed in a namespace since the last commit: the statements for the database, in order.

1. A content is written once for all messages that get it in one turn of the event loop.
2. An entity that is created again in the turn of its deletion replaces rows of the old one, before these are cleared.
"""

import itertools
import json
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from busway_broker.core.content import Content
from busway_broker.core.event import Event
from busway_broker.core.home import Recorder
from busway_broker.core.message import StoredMessage
from busway_broker.core.sequence_numbers import numbers_path, partition_of
from busway_broker.storage.entities import Record

type _Row = tuple[object, ...]

# A content before the messages that refer to it.
_TABLES = ("places", "contents", "messages", "message_ids", "sessions", "events", "entities")
_RETURNS_CONTENT = " RETURNING content"
_CLEARED = {
    "messages": "DELETE FROM messages WHERE place = ? RETURNING content",
    "message_ids": "DELETE FROM message_ids WHERE place = ?",
    "sessions": "DELETE FROM sessions WHERE place = ?",
    "events": "DELETE FROM events WHERE place = ?",
}
_UNUSED_AT_MOST = 200


class Changes(Recorder):
    """Collects changes until they are written."""

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
        self._statements: defaultdict[str, list[tuple[str, _Row]]] = defaultdict(list)
        """By table: a statement and what it is about."""
        self._contents: dict[Content, int] = {}

    @property
    def are_none(self) -> bool:
        """Return whether there is nothing to write."""
        return not self._statements

    def _note(self, table: str, statement: str, *row: object) -> None:
        self._statements[table].append((statement, row))

    def stored(self, path: str, message: StoredMessage) -> None:
        """Note a new message."""
        row = (
            self._id(path),
            message.sequence_number,
            self._content(message.content),
            message.enqueue_sequence_number,
            message.enqueued_time,
            message.time_to_live,
            message.delivery_count,
            message.state,
        )
        self._note("messages", "REPLACE INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)
        self.numbered(path, message.sequence_number)

    def _content(self, content: Content) -> int:
        """Return the id of a content, which has one message more."""
        known = self._contents.get(content)
        if known is not None:
            self._copies[known] = self._copies.get(known, 1) + 1
            return known
        number = self._contents[content] = self._next_content
        self._next_content += 1
        row = (
            number,
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
        self._note("contents", "INSERT INTO contents VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)
        return number

    def changed(self, path: str, message: StoredMessage) -> None:
        """Note that the content of a message has changed."""
        self.removed(path, message.sequence_number)
        self.stored(path, message)

    def updated(self, path: str, message: StoredMessage) -> None:
        """Note the delivery count and the state of a message."""
        statement = "UPDATE messages SET delivery_count = ?, state = ? WHERE place = ? AND number = ?"
        key = self._id(path), message.sequence_number
        self._note("messages", statement, message.delivery_count, message.state, *key)

    def removed(self, path: str, sequence_number: int) -> None:
        """Note that a message is gone."""
        statement = "DELETE FROM messages WHERE place = ? AND number = ? RETURNING content"
        self._note("messages", statement, self._id(path), sequence_number)

    def numbered(self, path: str, sequence_number: int) -> None:
        """Note that a sequence number has been assigned."""
        partition = partition_of(sequence_number)
        place = self._id(numbers_path(path, partition) if partition else path)
        self._note("places", "UPDATE places SET last_number = max(last_number, ?) WHERE id = ?", sequence_number, place)

    def seen(self, path: str, message_id: bytes, at: int) -> None:
        """Note a message id for duplicate detection."""
        # The order of the rows is the order in which ids leave the window.
        statement = "REPLACE INTO message_ids (place, message_id, seen_at) VALUES (?, ?, ?)"
        self._note("message_ids", statement, self._id(path), message_id, at)

    def forgotten(self, path: str, message_ids: Iterable[bytes]) -> None:
        """Note that message ids have left the window of duplicate detection."""
        for message_id in message_ids:
            statement = "DELETE FROM message_ids WHERE place = ? AND message_id = ?"
            self._note("message_ids", statement, self._id(path), message_id)

    def session_updated(self, path: str, session_id: str, state: bytes | None, at: int) -> None:
        """Note the state of a session."""
        key = self._id(path), session_id
        if state is None:
            self._note("sessions", "DELETE FROM sessions WHERE place = ? AND session_id = ?", *key)
        else:
            self._note("sessions", "REPLACE INTO sessions VALUES (?, ?, ?, ?)", *key, state, at)

    def appended(self, path: str, events: Sequence[Event]) -> None:
        """Note new events."""
        place = self._id(path)
        for event in events:
            content = event.content
            row = (
                place,
                event.sequence_number,
                event.offset,
                event.enqueued_time,
                content.annotation_count,
                content.partition_key,
                checksum(content.annotations, content.bare),
                content.annotations,
                content.bare,
            )
            self._note("events", "REPLACE INTO events VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)

    def dropped(self, path: str, before: int) -> None:
        """Note that the events before a sequence number are gone."""
        self._note("events", "DELETE FROM events WHERE place = ? AND number < ?", self._id(path), before)

    def cleared(self, path: str) -> None:
        """Note that everything at a path was deleted with its entity; what is noted from now on is of a new one."""
        place = self._id(path)
        self._note("places", "UPDATE places SET last_number = 0 WHERE id = ?", place)
        for table, statement in _CLEARED.items():
            self._note(table, statement, place)

    def entity(self, key: str, record: Record) -> None:
        """Note the record of an entity."""
        self._note("entities", "REPLACE INTO entities VALUES (?, ?)", key, json.dumps(record))

    def _id(self, path: str) -> int:
        place = self._ids.get(path)
        if place is None:
            lower = path.lower()
            place = self._ids.get(lower)
            if place is None:
                place = self._ids[lower] = self._next_place
                self._next_place += 1
                self._note("places", "INSERT INTO places VALUES (?, ?, 0)", place, lower)
            self._ids[path] = place
        return place

    def write(self, to: sqlite3.Connection) -> None:
        """Write the changes, within the caller's transaction, and start collecting again."""
        for table in _TABLES:
            for statement, group in itertools.groupby(self._statements[table], lambda each: each[0]):
                rows = [row for _, row in group]
                if statement.endswith(_RETURNS_CONTENT):
                    for row in rows:
                        for (content,) in to.execute(statement, row).fetchall():
                            self._release(content)
                else:
                    to.executemany(statement, rows)
        if len(self._unused) >= _UNUSED_AT_MOST:
            to.executemany("DELETE FROM contents WHERE id = ?", [(each,) for each in self._unused])
            self._unused.clear()
        self._start()

    def _release(self, content: int) -> None:
        left = self._copies.get(content, 1) - 1
        if left > 1:
            self._copies[content] = left
        else:
            self._copies.pop(content, None)
            if left == 0:
                self._unused.append(content)


def checksum(annotations: bytes, bare: bytes, delivery_annotations: bytes = b"") -> int:
    """Return the checksum of a content: SQLite has none, and a damaged body must not be delivered."""
    return zlib.crc32(delivery_annotations, zlib.crc32(bare, zlib.crc32(annotations)))
