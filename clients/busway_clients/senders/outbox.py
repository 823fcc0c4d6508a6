"""
A durable outbox: accepted messages are sent later, in order per session, even after a crash of the process.

SQLite in WAL mode with synchronous=FULL: `put` returns when the messages are on disk. Only one outbox can open the file
at a time.
"""

import os
import sqlite3
import threading
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from azure.servicebus.exceptions import MessageSizeExceededError

from busway_clients.database import Database, Kind
from busway_clients.errors import OutboxFull, OutboxInUse, SendFailed, StoreUnavailable, Unencodable, WrongUse
from busway_clients.senders.delivery import encode
from busway_clients.senders.messages import OutgoingMessage
from busway_clients.senders.serialization import freeze, parts, thaw

MAX_MESSAGES = 100_000
MAX_BYTES = 1024**3

_FILE = Kind(
    "an outbox",
    0x42574F42,
    1,
    """
    CREATE TABLE IF NOT EXISTS messages (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        message_id TEXT NOT NULL,
        lane TEXT,
        content BLOB NOT NULL,
        accepted_at TEXT NOT NULL,
        fault TEXT
    );
    CREATE INDEX IF NOT EXISTS lanes ON messages (lane);
    CREATE INDEX IF NOT EXISTS faults ON messages (lane) WHERE fault IS NOT NULL
    """,
)


class Waiting(NamedTuple):
    """A waiting message; its number is its place in the order of acceptance."""

    number: int
    lane: str | None
    message: OutgoingMessage


class Held(NamedTuple):
    """
    A message that the service refused and that waits for an operator.

    Shape:  lane is its session id or partition key, whose later messages wait too; fault names the error.
    """

    number: int
    message_id: str
    lane: str | None
    accepted_at: datetime
    fault: str


class Accepted(NamedTuple):
    """
    The result of one send.

    Shape:  sent and kept are message ids: a namespace has accepted the first, the outbox keeps the others.
    """

    sent: tuple[str, ...]
    kept: tuple[str, ...]


class Drained(NamedTuple):
    """
    The result of one drain of the outbox.

    Shape:  sent, held and left count messages; error is why the drain stopped before the outbox was empty, else None.
    """

    sent: int
    held: int
    left: int
    error: SendFailed | None


class Outbox:
    """The file of waiting messages; safe to use from several threads of one process."""

    def __init__(
        self, path: str | os.PathLike[str], *, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES
    ) -> None:
        """
        Open the file at *path*, or create one that only its owner may read.

        Raises OutboxInUse while another outbox, in any process, has it open; UnusableFile for a file of another kind
        or version. Units: max_bytes counts the contents of the messages.
        """
        if max_messages < 1 or max_bytes < 1:
            raise WrongUse(
                f"max_messages and max_bytes of an outbox: got {max_messages} and {max_bytes}, expected 1 or more"
            )
        try:
            self._database = Database(path, _FILE, is_exclusive=True)
        except StoreUnavailable as error:
            cause = error.__cause__
            if isinstance(cause, sqlite3.Error) and cause.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                text = f"{os.fspath(path)}: another outbox has the file open, expected one outbox per file"
                raise OutboxInUse(text) from error
            raise
        # Counts change only after a commit: a transaction may fail at its end, for example on a full disk.
        self._counting = threading.Lock()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        with self._database.reading() as connection:
            query = "SELECT count(*), coalesce(sum(length(content)), 0) FROM messages"
            held: tuple[int, int] = connection.execute(query).fetchone()
        self._messages, self._bytes = held

    def __len__(self) -> int:
        """Return the number of waiting messages, including held ones."""
        return self._messages

    @property
    def size_in_bytes(self) -> int:
        """Return the size of the waiting contents."""
        return self._bytes

    def put(self, messages: Sequence[OutgoingMessage]) -> None:
        """
        Accept *messages*, all of them or none.

        Raises OutboxFull; WrongUse for a message that the SDK cannot encode, which would otherwise fail only when sent.
        """
        now = datetime.now(UTC).isoformat()
        rows = [(message.message_id, message.lane, _content(message), now) for message in messages]
        added = sum(len(row[2]) for row in rows)
        with self._counting:
            if self._messages + len(rows) > self._max_messages or self._bytes + added > self._max_bytes:
                seen = f"{len(rows)} more messages ({added} bytes) beside {self._messages} ({self._bytes} bytes)"
                expected = f"expected at most {self._max_messages} messages and {self._max_bytes} bytes"
                raise OutboxFull(f"{self._database.path}: {seen}, {expected}")
            with self._database.transaction() as connection:
                connection.executemany(
                    "INSERT INTO messages (message_id, lane, content, accepted_at) VALUES (?, ?, ?, ?)", rows
                )
            self._messages += len(rows)
            self._bytes += added

    def lanes(self, lanes: Collection[str]) -> frozenset[str]:
        """Return those of *lanes* that have waiting messages."""
        with self._database.reading() as connection:
            query = "SELECT 1 FROM messages WHERE lane = ? LIMIT 1"
            return frozenset(lane for lane in lanes if connection.execute(query, (lane,)).fetchone())

    def next(self, count: int) -> list[Waiting]:
        """Return the first messages that may be sent, without lanes that have a held message."""
        query = """
            SELECT number, message_id, lane, content FROM messages
            WHERE fault IS NULL
              AND (lane IS NULL OR lane NOT IN (
                SELECT lane FROM messages WHERE fault IS NOT NULL AND lane IS NOT NULL))
            ORDER BY number LIMIT ?
        """
        with self._database.reading() as connection:
            rows = connection.execute(query, (count,)).fetchall()
        return [Waiting(number, lane, OutgoingMessage(name, thaw(content))) for number, name, lane, content in rows]

    def remove(self, numbers: Collection[int]) -> None:
        """Delete messages that were sent, or that an operator discards."""
        sizes: list[int] = []
        with self._counting:
            with self._database.transaction() as connection:
                for number in numbers:
                    query = "DELETE FROM messages WHERE number = ? RETURNING length(content)"
                    sizes += (size for (size,) in connection.execute(query, (number,)).fetchall())
            self._messages -= len(sizes)
            self._bytes -= sum(sizes)

    def hold(self, number: int, fault: str) -> None:
        """Hold a message that the service refused; later messages of its lane wait."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE messages SET fault = ? WHERE number = ?", (fault, number))

    def release(self, number: int) -> None:
        """Allow a held message to be sent again."""
        with self._database.transaction() as connection:
            connection.execute("UPDATE messages SET fault = NULL WHERE number = ?", (number,))

    def held(self) -> list[Held]:
        """Return the held messages, in their order."""
        columns = "number, message_id, lane, accepted_at, fault"
        query = f"SELECT {columns} FROM messages WHERE fault IS NOT NULL ORDER BY number"  # noqa: S608 - a constant
        with self._database.reading() as connection:
            rows = connection.execute(query).fetchall()
        return [
            Held(number, message_id, lane, datetime.fromisoformat(accepted_at), fault)
            for number, message_id, lane, accepted_at, fault in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def _content(message: OutgoingMessage) -> bytes:
    content = freeze(parts(message.raw))
    try:
        encode(thaw(content))
    except (Unencodable, MessageSizeExceededError) as error:
        raise WrongUse(f"message {message.message_id}: cannot be stored, {error}") from error
    return content
