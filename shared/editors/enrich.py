"""The enrich editor: adds data from a table, and facts about the arrival, to messages."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, model_validator

from shared.amqp.values import Value, long, string, timestamp
from shared.clock import SystemClock
from shared.codecs.json import Json, read
from shared.editors.content.body import content_of, put_content
from shared.editors.content.json_fields import parse_path
from shared.editors.lookup.columns import Column, Enrichment, enrichment, enrichments
from shared.editors.lookup.json_members import with_members
from shared.editors.lookup.table_source import BlobSource, FileSource, Reloaded, Source
from shared.editors.lookup.tables import FORMATS, BrokenTableError, by_key, key_text, rows_of
from shared.editors.options import AS_WRITTEN, Stateless, Step, Strict, TaskFacts, configured_file
from shared.editors.state.store import Store
from shared.editors.validate import PropertyName
from shared.errors import MessageRejected
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.protocols import EditedTogether
from shared.stores.blobs import Blob
from shared.time_limit import TimeLimit

_HISTORY = "repl-"


def _table_name(name: str) -> str:
    if PurePosixPath(name).suffix.lower() not in FORMATS:
        raise ValueError(f"names {name}, expected a name that ends with {' or '.join(FORMATS)}")
    return name


def _members_only(text: str) -> str:
    if text != "$" and not all(isinstance(step, str) for step in parse_path(text)):
        raise ValueError(f"{text!r} leads to more than members of objects, expected steps such as .name and ['name']")
    return text


def _single(text: str) -> str:
    if None in parse_path(text):
        raise ValueError(f"{text!r} leads to several values, expected one")
    return text


def _no_history(name: str) -> str:
    if name.lower().startswith(_HISTORY):
        raise ValueError(f"names {name}, which belongs to the history of a message")
    return name


type TableName = Annotated[str, Field(min_length=1), AfterValidator(_table_name)]
type NewProperty = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_no_history)]
type Fact = Literal["task", "site", "entity", "partition", "enqueued_time", "sequence_number", "received_time"]


class TableBlob(Store):
    """A table as a blob."""

    blob: TableName
    """Name of the blob, which ends with .csv, .json or .parquet."""


class Key(Strict):
    """Where the key of a message is: property or body."""

    property: PropertyName | None = None
    """Application property, in any case, or a broker property as sys.SessionId."""
    body: Annotated[str, AfterValidator(_single)] | None = None
    """Path to a text or whole number in a JSON body, such as $.customer.id."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.property is None) == (self.body is None):
            raise ValueError("expected property or body")
        return self

    @cached_property
    def _steps(self) -> tuple[str | int, ...]:
        return tuple(step for step in parse_path(self.body or "") if step is not None)

    def of(self, message: Message, body: Json) -> str | None:
        """Return the key of a message, None without one."""
        if self.body is not None:
            return key_text(_at(body, self._steps))
        value = RuleProperties(message).named(self.property or "")
        return None if value is None else key_text(value.payload)

    def describe_missing(self, column: str | None, *, is_there: bool) -> str:
        """Return the problem of a message that is not in the table."""
        place = self.body or self.property
        if is_there:
            return f"{place} is not a key in the table's column {column!r}"
        return f"has no text or whole number at {place}, expected a key of the table"


class BodyMembers(Strict):
    """What is added to a JSON body."""

    into: Annotated[str, AfterValidator(_members_only)]
    """Path of the object, $ for the whole body; a missing last step is added."""
    set: Annotated[dict[str, str | Column], Field(min_length=1)]
    """Columns by the names of the members to set."""


class EnrichOptions(Strict):
    """A table, its key and the columns to add; or facts; or both."""

    table: TableName | None = None
    """File with the table (.csv, .json or .parquet), its path in the configuration folder."""
    blob: TableBlob | None = None
    """The table as a blob."""
    key: Key | None = None
    """Where the message has the key."""
    column: str | None = None
    """Column of the table with the keys, which must be unique."""
    properties: dict[NewProperty, str | Column] = Field(default_factory=dict)
    """Columns by the names of the application properties to set; an empty value removes the property."""
    body: BodyMembers | None = None
    """Columns to set as members of the JSON body; its other bytes stay."""
    missing: Literal["reject", "pass", "default"] = "reject"
    """What happens to a message whose key is not in the table; `default` adds the default values."""
    default: dict[str, str | int | float | bool | None] | None = None
    """Values by column for messages whose key is not in the table."""
    refresh: Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=1)), AS_WRITTEN] = timedelta(minutes=1)
    """How often to check for a new version of the table, at the next delivery."""
    facts: dict[NewProperty, Fact] = Field(default_factory=dict)
    """Facts about the message's arrival by the names of the application properties to set."""
    _path: Path = PrivateAttr(Path())
    _first: Blob | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        if self.table is not None and self.blob is not None:
            raise ValueError("names a table and a blob, expected one of them")
        has_table = self.table is not None or self.blob is not None
        if has_table and (self.key is None or self.column is None or not (self.properties or self.body)):
            raise ValueError("a table needs a key, the column of the keys, and properties or body")
        if not has_table and (self.key or self.column or self.properties or self.body):
            problem = "has a key, column, properties or body without a table or blob, expected a table or a blob"
            raise ValueError(problem)
        if not has_table and not self.facts:
            raise ValueError("adds nothing, expected a table, a blob or facts")
        if (self.missing == "default") != (self.default is not None):
            raise ValueError("missing: default and the default values need each other")
        if set(self.properties) & set(self.facts):
            raise ValueError(f"{min(set(self.properties) & set(self.facts))!r} is a column and a fact")
        self.for_missing()
        if self.table is not None:
            self._path = configured_file(self.table, info)
            try:
                self._first = FileSource(self.table, self._path, SystemClock()).read()
                self.parse(self._first.content if self._first is not None else b"")
            except BrokenTableError as error:
                raise ValueError(f"table {self.table}: {error}") from error
        return self

    def parse(self, content: bytes) -> dict[str, Enrichment]:
        """Return what each row of a table adds, by its key; raises BrokenTableError."""
        columns, rows = rows_of(content, self.table or (self.blob.blob if self.blob is not None else ""))
        return enrichments(by_key(columns, rows, self.column or ""), *self._columns(), columns)

    def for_missing(self) -> Enrichment | None:
        """Return what is added for a key that is not in the table, None for nothing; raises ValueError."""
        if self.default is None:
            return None
        properties, members = self._columns()
        unmatched = set(self.default) ^ {column.column for column in (*properties.values(), *members.values())}
        if unmatched:
            raise ValueError(f"default: {min(unmatched)!r}, expected a value for each column that is used")
        return enrichment(self.default, properties, members, "default")

    def source(self, task: TaskFacts) -> tuple[Source, Blob | None] | None:
        """Return the source of the table and its first version, if known; raises ConfigError."""
        if self.blob is not None:
            return BlobSource(self.blob.blob, self.blob.open(task, "enrich")), None
        return None if self.table is None else (FileSource(self.table, self._path, task.clock), self._first)

    def _columns(self) -> tuple[dict[str, Column], dict[str, Column]]:
        """Return the columns that become properties, and those that become members of the body."""
        return _written_out(self.properties), _written_out(self.body.set if self.body is not None else {})


def _written_out(columns: Mapping[str, Column | str]) -> dict[str, Column]:
    return {name: each if isinstance(each, Column) else Column(column=each) for name, each in columns.items()}


class EnrichStep(Step):
    """
    Adds columns of a table's row, and facts about the arrival, to messages.

    A table is a file in the configuration folder or a blob. It is read when the task starts, and again when it changes.
    If a new version is invalid, an error is logged and the previous version stays in use. Keys must be unique. Only the
    named members of the body change. While a blob cannot be read for the first time, the messages stay at the source.
    """

    options: EnrichOptions = Field(alias="enrich")

    def editor(self, task: TaskFacts, /) -> "Enrich":
        """Return the editor with these options."""
        return Enrich(self.options, task)


class Enrich(Stateless):
    """Adds columns of a table, and facts about the arrival, to messages."""

    name = "enrich"

    def __init__(self, options: EnrichOptions, task: TaskFacts) -> None:
        """Add what *options* name."""
        self._options = options
        self._for_missing = options.for_missing()
        into = options.body.into if options.body is not None else None
        self._into = None if into is None else [str(step) for step in parse_path(into)] if into != "$" else []
        self._reads_body = options.body is not None or (options.key is not None and options.key.body is not None)
        self._facts = {name: _FACTS[fact] for name, fact in options.facts.items()}
        self._task = task
        self._time_limit = TimeLimit(task.edit_seconds)
        found = options.source(task)
        self._table = (
            None
            if found is None
            else Reloaded(found[0], options.parse, options.refresh, task.clock, task=task.name, first=found[1])
        )

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return the messages with the additions."""
        table = await self._table.current(timeout_seconds) if self._table is not None else {}
        edited = await self._time_limit.each(lambda message: self._edit(message, table), messages)
        return [each if isinstance(each, MessageRejected) else (each,) for each in edited]

    def _edit(self, message: Message, table: Mapping[str, Enrichment]) -> Message:
        changes: dict[str, Value | None] = {}
        edited = message.copy()
        place, options = self._options.key, self._options
        if place is not None:
            content = content_of(message) if self._reads_body else b""
            key = place.of(message, read(content) if self._reads_body else None)
            found = self._for_missing if key is None else table.get(key, self._for_missing)
            if found is None and options.missing == "reject":
                raise MessageRejected("KeyMissing", place.describe_missing(options.column, is_there=key is not None))
            if found is not None:
                changes.update(found.properties)
                if self._into is not None:
                    put_content(edited, with_members(content.decode(), self._into, found.members).encode())
        for name, fact in self._facts.items():
            changes[name] = fact(message.arrival, self._task)
        if changes:
            edited.set_properties(changes)
        return edited


def _at(body: Json, steps: Sequence[str | int]) -> Json:
    for step in steps:
        if isinstance(body, dict) and isinstance(step, str):
            body = body.get(step)
        elif isinstance(body, list) and isinstance(step, int) and step < len(body):
            body = body[step]
        else:
            return None
    return body


def _time(milliseconds: int | None) -> Value | None:
    return None if milliseconds is None else timestamp(milliseconds)


_FACTS: Mapping[Fact, Callable[[Arrival, TaskFacts], Value | None]] = {
    "task": lambda _, task: string(task.name),
    "site": lambda arrival, _: string(arrival.origin.site),
    "entity": lambda arrival, _: string(arrival.origin.entity),
    "partition": lambda arrival, _: None if arrival.origin.partition is None else string(arrival.origin.partition),
    "enqueued_time": lambda arrival, _: _time(arrival.enqueued_time),
    "sequence_number": lambda arrival, _: None if arrival.sequence_number is None else long(arrival.sequence_number),
    "received_time": lambda _, task: _time(int(task.clock.now().timestamp() * 1000)),
}
