"""Messages, events and session states as a database holds them."""

import json
from typing import Any, Final

from busway_broker.core.content import Content
from busway_broker.core.event import Event, EventContent
from busway_broker.core.message import State, StoredMessage
from busway_broker.storage.changes import Changes, checksum
from busway_broker.storage.database import Database, StorageError
from busway_broker.storage.entities import Record

_NOWHERE: Final = 0  # ids of places start at 1
_MESSAGES: Final = (
    "SELECT number, enqueue_number, enqueued_time, messages.time_to_live, delivery_count, state, messages.content, "
    "header, annotations, annotation_count, bare, session_id, partition_key, contents.time_to_live, "
    "scheduled_enqueue_time, delivery_annotations, checksum "
    "FROM messages LEFT JOIN contents ON contents.id = messages.content WHERE place = ? ORDER BY number"
)
_EVENTS: Final = (
    "SELECT annotations, annotation_count, bare, partition_key, number, offset, enqueued_time, checksum "
    "FROM events WHERE place = ? ORDER BY number"
)


class Loader:
    """
    Reads the state of a namespace, place by place; StorageError for a file that is damaged.

    A path is that of a store or partition, or the `scheduled_path` of a queue or topic. One that is not in the database
    has nothing.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._copies: dict[int, int] = dict(
            self._rows("SELECT content, count(*) FROM messages GROUP BY content HAVING count(*) > 1")
        )
        # Copies of a message share their content in memory too.
        self._shared: dict[int, Content] = {}
        rows = self._rows("SELECT path, id, last_number FROM places")
        self.places: dict[str, int] = {path: place for path, place, _ in rows}
        self._last_numbers: dict[str, int] = {path: last_number for path, _, last_number in rows}

    def changes(self) -> Changes:
        """Return an empty collection of changes to what was loaded."""
        [(last,)] = self._rows("SELECT coalesce(max(id), 0) FROM contents")
        return Changes(self.places, last + 1, self._copies)

    def entities(self) -> dict[str, Record]:
        """Return the records of entities by key."""
        return {key: json.loads(record) for key, record in self._rows("SELECT key, record FROM entities")}

    def last_number(self, path: str) -> int:
        """Return the highest sequence number that was assigned."""
        return self._last_numbers.get(path.lower(), 0)

    def messages(self, path: str) -> list[StoredMessage]:
        """Return the messages by sequence number."""
        with self._database.reading() as connection:
            return [
                StoredMessage(
                    self._content(path, number, *content),
                    number,
                    enqueue_number,
                    enqueued_time,
                    time_to_live,
                    delivery_count=count,
                    state=State(state),
                )
                for number, enqueue_number, enqueued_time, time_to_live, count, state, *content in connection.execute(
                    _MESSAGES, (self._place(path),)
                )
            ]

    def _content(self, path: str, number: int, content_id: int, *fields: Any) -> Content:  # noqa: ANN401 - the columns of a row
        content = self._shared.get(content_id)
        if content is None:
            *parts, expected = fields
            if expected is None:
                raise self._damaged(path, number)
            content = Content(*parts)
            if checksum(content.annotations, content.bare, content.delivery_annotations) != expected:
                raise self._damaged(path, number)
            if content_id in self._copies:
                self._shared[content_id] = content
        return content

    def message_ids(self, path: str) -> dict[bytes, int]:
        """Return the message ids for duplicate detection with their times in milliseconds, the oldest first."""
        return dict(
            self._rows("SELECT message_id, seen_at FROM message_ids WHERE place = ? ORDER BY id", self._place(path))
        )

    def sessions(self, path: str) -> list[tuple[str, bytes, int]]:
        """Return the sessions that have a state: id, state and time in milliseconds."""
        return self._rows("SELECT session_id, state, updated_at FROM sessions WHERE place = ?", self._place(path))

    def events(self, path: str) -> list[Event]:
        """Return the events by sequence number."""
        with self._database.reading() as connection:
            return [self._event(path, *fields) for fields in connection.execute(_EVENTS, (self._place(path),))]

    def _event(self, path: str, *fields: Any) -> Event:  # noqa: ANN401 - the columns of a row
        annotations, count, bare, partition_key, number, offset, enqueued_time, expected = fields
        if checksum(annotations, bare) != expected:
            raise self._damaged(path, number)
        return Event(EventContent(annotations, count, bare, partition_key), number, offset, enqueued_time)

    def _damaged(self, path: str, number: int) -> StorageError:
        return StorageError(
            f"{self._database.path}: damaged: the content of {path}, sequence number {number}, has changed; "
            "restore the folder from a copy, or delete it to start empty"
        )

    def _place(self, path: str) -> int:
        return self.places.get(path.lower(), _NOWHERE)

    def _rows(self, query: str, *parameters: object) -> list[Any]:
        with self._database.reading() as connection:
            return connection.execute(query, parameters).fetchall()
