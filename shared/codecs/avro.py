"""
Avro values with a known schema, raw or as single objects; `shared.codecs.avro_container` has the containers.

Source: Apache Avro 1.12 specification; `Single-object encoding`, `Parsing Canonical Form`, CRC-64-AVRO.
"""

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from typing import override

import fastavro
from fastavro.read import LOGICAL_READERS

from shared.codecs.avro_scalars import Mismatch, Schema
from shared.codecs.avro_types import NOT_AVRO, AvroTypes
from shared.codecs.plain import Plain, not_writable
from shared.codecs.plain_json import PlainJson
from shared.errors import MessageRejected

MOST_VALUES = 250_000
"""How many values a body may become, with all that they contain; a larger body one for each of its bytes."""

_WITH_ID = "avro/binary+"
_MARKER = b"\xc3\x01"
# About as many digits as Python's int() accepts in a text.
_LONGEST_DECIMAL = 1700


class AvroSchema:
    """A schema, parsed once, with which content from others can be read safely."""

    def __init__(self, text: bytes) -> None:
        """Parse *text*; raises ValueError with the problem."""
        try:
            written = PlainJson().read(text)
        except MessageRejected as error:
            raise ValueError(error.description.replace("body", "the schema", 1)) from error
        self.text = PlainJson().write(written)
        named: dict[str, Schema] = {}
        try:
            self.parsed = fastavro.parse_schema(written, named)
            # It removes the parts of the given schema that are not canonical.
            canonical = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(copy.deepcopy(written)))
            self._types = AvroTypes(self.parsed, named)
            self.fingerprint = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        except Exception as error:
            # The library raises errors of many types.
            raise ValueError(f"is not a usable Avro schema: {type(error).__name__}: {error}") from error

    def read(self, content: bytes) -> Plain:
        """Return the value that *content* is; raises MessageRejected."""
        self.count(content, 1, max(MOST_VALUES, len(content)))
        return self.read_several(content, 1, self)[0]

    def count(self, content: bytes, count: int, most: int) -> int:
        """
        Return how many values the *count* values in *content* are at most, with all that they contain.

        Raises MessageRejected if they are more than *most*, or nested too deeply. A body that cannot become so many is
        not walked through.
        """
        possible = count + (len(content) + count) * self._types.values_per_byte
        if possible <= most and not self._types.contains_itself:
            return possible
        try:
            return self._types.walk(content, count, most)[1]
        except ValueError:
            raise _not_of_the_schema() from None

    def pieces(self, content: bytes, count: int, most: int) -> list[bytes]:
        """Return the bytes of each of the *count* values in *content*; raises as `count`."""
        try:
            ends, _ = self._types.walk(content, count, most)
        except ValueError:
            raise _not_of_the_schema() from None
        return [content[start:end] for start, end in pairwise((0, *ends))]

    def read_several(self, content: bytes, count: int, writer: "AvroSchema") -> list[Plain]:
        """
        Return the *count* values that *content* is, written with the schema *writer*, resolved to this schema.

        The caller has counted what they contain.
        """
        stream = BytesIO(content)
        reader = None if writer is self else self.parsed
        try:
            values = [fastavro.schemaless_reader(stream, writer.parsed, reader) for _ in range(count)]
        except MessageRejected:
            raise
        except Exception:  # noqa: BLE001 - the library raises many types of error, whose texts may quote the body
            raise _not_of_the_schema() from None
        if stream.tell() != len(content):
            raise MessageRejected("TrailingBytes", "body has bytes after the end of its Avro")
        return values

    def write(self, value: Plain) -> bytes:
        """Return *value* as Avro; raises MessageRejected if it does not match the schema."""
        try:
            datum = self._types.convert(value)
        except Mismatch as error:
            raise MessageRejected("SchemaViolated", f"${error.path}: {error.problem}") from error
        except RecursionError as error:
            raise MessageRejected("TooDeep", "body is nested too deeply to be written as Avro") from error
        stream = BytesIO()
        try:
            fastavro.schemaless_writer(stream, self.parsed, datum)
        except UnicodeEncodeError as error:
            raise not_writable(value, _encodes, error, "Avro") from error
        return stream.getvalue()


class Avro:
    """What the forms of Avro have in common."""

    name = "avro"

    def claims(self, media_type: str) -> bool:
        """Return whether a media type is one of those in use for Avro; none is registered."""
        known = ("avro/binary", "application/avro", "application/x-avro", "application/vnd.apache.avro")
        return media_type in known or media_type.endswith("+avro") or media_type.startswith(_WITH_ID)


class RawAvro(Avro):
    """A value without its schema; `avro/binary`."""

    media_type = "avro/binary"

    def __init__(self, schema: AvroSchema, schema_id: str | None = None) -> None:
        """Read and write by *schema*, which has *schema_id* in a registry."""
        self._schema_id = schema_id
        if schema_id is not None:
            self.media_type = f"{_WITH_ID}{schema_id}"
        self.read: Callable[[bytes], Plain] = schema.read
        self.write: Callable[[Plain], bytes] = schema.write

    @override
    def claims(self, media_type: str) -> bool:
        """Return what other forms return; raises MessageRejected as `check_schema_id`."""
        check_schema_id(media_type, self._schema_id)
        return super().claims(media_type)


class SingleObject(Avro):
    """A value after the fingerprint of its schema; `avro/binary`."""

    media_type = "avro/binary"

    def __init__(self, schema: AvroSchema) -> None:
        """Read and write by *schema*."""
        self._schema = schema
        self._head = _MARKER + schema.fingerprint

    def read(self, content: bytes) -> Plain:
        """Return the value in *content*; raises MessageRejected, also for the fingerprint of another schema."""
        if content[: len(self._head)] != self._head:
            if content[: len(_MARKER)] != _MARKER:
                raise MessageRejected(NOT_AVRO, "body is not an Avro single object, expected it to begin with c301")
            raise MessageRejected(NOT_AVRO, "body has the fingerprint of another schema")
        return self._schema.read(content[len(self._head) :])

    def write(self, value: Plain) -> bytes:
        """Return *value* after the schema's fingerprint."""
        return self._head + self._schema.write(value)


def check_schema_id(content_type: str | None, schema_id: str | None) -> None:
    """
    Raise MessageRejected if *content_type* names another schema of a registry than *schema_id*.

    Source: the Avro serializers of Azure Schema Registry, `avro/binary+ID`.
    """
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if not media_type.startswith(_WITH_ID):
        return
    if schema_id is None:
        problem = "names a schema of a registry by its id, expected `schema_id` beside the configured schema"
        raise MessageRejected("WrongContentType", problem)
    if media_type.removeprefix(_WITH_ID) != schema_id.lower():
        raise MessageRejected("WrongContentType", f"names another schema of the registry than {schema_id}")


@lru_cache(maxsize=64)
def embedded_schema(text: bytes) -> AvroSchema:
    """Return the schema in a body; raises MessageRejected. Caching the last ones saves 500 µs for most bodies."""
    try:
        return AvroSchema(text)
    except ValueError as error:
        raise MessageRejected(NOT_AVRO, "body has a schema that cannot be used") from error


def _not_of_the_schema() -> MessageRejected:
    return MessageRejected(NOT_AVRO, "body is not Avro of the schema, or is cut off")


def _encodes(value: Plain) -> None:
    json.dumps(value, ensure_ascii=False, default=str).encode()


def _exact_decimal(content: bytes, writer_schema: Schema, _: Schema = None) -> Decimal:
    """Return a decimal with all its digits; fastavro rounds to the precision of the schema."""
    if len(content) > _LONGEST_DECIMAL:
        raise ValueError("too long: its digits take quadratic time")
    unscaled = int.from_bytes(content, signed=True)
    digits = Decimal(unscaled).as_tuple()
    if len(digits.digits) > writer_schema["precision"]:
        raise ValueError("more digits than the precision")
    return Decimal((digits.sign, digits.digits, -writer_schema.get("scale", 0)))


LOGICAL_READERS["bytes-decimal"] = LOGICAL_READERS["fixed-decimal"] = _exact_decimal
