"""
Runs editors and tasks, including your own Python functions, in tests without a broker or a test library.

    from shared.testing import edited, message

    def test_orders_get_their_tax():
        result = edited({"python": "orders:with_tax"}, message({"total": 100}), folder="config")
        assert result.message.json == {"total": 100, "tax": 19}

`edited` runs one step of a task file, or several; `carried` runs a task of a configuration folder. Both use the
pipeline of the app, with outputs that keep the messages in memory.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from shared.amqp.sections import Sections
from shared.amqp.values import long, string, timestamp
from shared.assembly.pipelines import assemble
from shared.clock import ManualClock
from shared.codecs.json import Json, read
from shared.editors.function_api import properties_of, put_json, put_text, set_property, text_of
from shared.editors.options import FOLDER
from shared.errors import BuswayError
from shared.journal.in_memory import MemoryJournal
from shared.line.pipeline import Pipeline
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Outcome, Outgoing, Record
from shared.tasks.files import Configuration, load
from shared.tasks.models import Connection, TaskFile

__all__ = ["Carried", "Outcome", "Sent", "carried", "edited", "message"]

NOW = datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC)
"""The enqueued time of the messages, and the time of the pipeline's clock."""

_HERE = Origin("here", "source")
_STAMPED = "repl-"
_NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def message(
    body: object = b"",
    *,
    properties: Mapping[str, object] | None = None,
    message_id: str | None = "m-1",
    session_id: str | None = None,
    partition_key: str | None = None,
    content_type: str | None = None,
    subject: str | None = None,
) -> Message:
    """Return a message as received; a *body* that is neither bytes nor text is encoded as JSON."""
    made = _empty()
    if isinstance(body, bytes):
        made.body = body
    elif isinstance(body, str):
        put_text(made, body)
    else:
        put_json(made, body)
        content_type = content_type or "application/json"
    made.message_id = None if message_id is None else string(message_id)
    made.session_id = session_id
    made.content_type = content_type
    made.subject = subject
    if partition_key is not None:
        made.set_annotations({"x-opt-partition-key": string(partition_key)})
    for name, value in (properties or {}).items():
        set_property(made, name, value)
    return made


class Sent:
    """A message that was sent; its stamps are left out."""

    def __init__(self, content: bytes, target: str, partition: str | None = None) -> None:
        """Decode *content*, which was sent to *target*, a site and an entity."""
        self.target = target
        self.partition = partition
        self.raw = Message.received(content, Origin(*target.split("/", 1)))

    def __repr__(self) -> str:
        return f"<{self.target}: {self.message_id} {self.body!r}>"

    @property
    def body(self) -> bytes | None:
        """The bytes of data sections, None for other bodies."""
        return self.raw.body

    @property
    def text(self) -> str:
        """The body as text."""
        return text_of(self.raw)

    @property
    def json(self) -> Json:
        """The parsed JSON of the body, with Python's numbers; `text` has every digit."""
        return read(text_of(self.raw).encode())

    @cached_property
    def properties(self) -> dict[str, object]:
        """The application properties as plain values, without those that begin with `repl-`."""
        return {name: value for name, value in properties_of(self.raw).items() if not name.lower().startswith(_STAMPED)}

    @property
    def message_id(self) -> object:
        """The id as a plain value."""
        identity = self.raw.message_id
        return None if identity is None else identity.payload

    @property
    def session_id(self) -> str | None:
        """The session."""
        return self.raw.session_id

    @property
    def partition_key(self) -> str | None:
        """The partition key."""
        return self.raw.partition_key

    @property
    def content_type(self) -> str | None:
        """The media type of the body."""
        return self.raw.content_type

    @property
    def subject(self) -> str | None:
        """The subject."""
        return self.raw.subject


class Carried:
    """The messages that were sent, and the outcome of each."""

    def __init__(self, messages: Sequence[Sent], records: Sequence[Record]) -> None:
        """Keep the *messages* that were sent, and the journal's *records* of all messages."""
        self.messages = messages
        self.records = records

    @property
    def message(self) -> Sent:
        """The one message that was sent; AssertionError if there are more or fewer."""
        if len(self.messages) != 1:
            raise AssertionError(f"{len(self.messages)} messages were sent, expected one: {self.reasons}")
        return self.messages[0]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcome of each message, in order."""
        return [record.outcome for record in self.records]

    @property
    def reasons(self) -> list[str]:
        """The reasons why messages were rejected or withheld, in order."""
        return [record.reason for record in self.records if record.reason is not None]


def edited(
    steps: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *messages: Message,
    folder: str | Path | None = None,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> Carried:
    """
    Run *messages* through editors and return the result; the messages stay unchanged.

    *steps* are written as in a task file. *folder* is the configuration folder. *settings* are app settings.
    Raises pydantic's ValidationError, a ValueError, if the steps are wrong.
    """
    document = {
        "task": "test",
        "source": {"connection": "here", "queue": "source"},
        "editors": [steps] if isinstance(steps, Mapping) else [*steps],
        "routes": [{"target": {"connection": "there", "queue": "target"}}],
        "rejects": {"connection": "there", "queue": "rejects"},
        "limits": {"rejects_in_a_row": False},
    }
    connections = {name: {"kind": "service-bus", "setting": name.upper()} for name in ("here", "there")}
    task = TaskFile.model_validate(document, context={FOLDER: None if folder is None else Path(folder)})
    configuration = Configuration(
        {name: Connection.model_validate(connection) for name, connection in connections.items()},
        [task],
        {"test": "test"},
    )
    return _carried(configuration, "test", messages, settings)


def carried(
    folder: str | Path,
    task: str,
    *messages: Message,
    partition: str | None = None,
    settings: Mapping[str, str] = _NO_SETTINGS,
) -> Carried:
    """
    Run *messages*, from one *partition* of a hub, through a task of the configuration in *folder*; return the result.

    Raises ConfigError if the configuration is wrong, ValueError if it has no such task, and any error for which the
    app would abandon the messages.
    """
    return _carried(load(Path(folder)), task, messages, settings, partition)


def _carried(
    configuration: Configuration,
    name: str,
    messages: Sequence[Message],
    settings: Mapping[str, str],
    partition: str | None = None,
) -> Carried:
    outputs = {alias: _Output() for alias in configuration.connections}
    journal, clock = MemoryJournal(), ManualClock(NOW)
    tasks = {task.name: task for task in assemble(configuration, outputs, settings=settings, clock=clock)}
    if name not in tasks:
        raise ValueError(f"unknown task {name!r}, expected one of {', '.join(tasks)}")
    task = tasks[name]

    async def sleep(seconds: float) -> None:
        clock.advance(seconds)

    pipeline = Pipeline(task, journal, clock, sleep)
    asyncio.run(pipeline.run([_delivered(number, each) for number, each in enumerate(messages, 1)], partition))
    rejects = None if task.rejects is None else str(task.rejects)
    sent = [
        Sent(outgoing.content, place, outgoing.partition)
        for alias, output in outputs.items()
        for entity, outgoing in output.taken
        if (place := f"{configuration.site(alias)}/{entity}") != rejects
    ]
    return Carried(sent, journal.records)


def _delivered(number: int, made: Message) -> bytes:
    """Return *made* as the service delivers it, encoded."""
    delivered = made.copy()
    enqueued = round(NOW.timestamp() * 1000)
    delivered.set_annotations({"x-opt-sequence-number": long(number), "x-opt-enqueued-time": timestamp(enqueued)})
    return delivered.encode()


def _empty() -> Message:
    return Message(Sections(), Arrival(_HERE, 1, None, round(NOW.timestamp() * 1000)))


class _Output:
    """An output that accepts every message and keeps it in memory."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, Outgoing]] = []

    async def send(
        self,
        entity: str,
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - required by the protocol
    ) -> list[BuswayError | None]:
        self.taken += [(entity, each) for each in messages]
        return [None] * len(messages)

    async def close(self) -> None:
        pass
