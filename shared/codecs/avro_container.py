"""
Avro object container files: a schema, and blocks of values written with it.

Senders are not trusted: blocks are decompressed within limits.

Source: Apache Avro 1.12 specification, `Object Container Files`.
"""

from collections.abc import Iterator, Sequence
from hashlib import md5

from shared.codecs.avro import MOST_VALUES, Avro, AvroSchema, embedded_schema
from shared.codecs.avro_types import NOT_AVRO, read_long
from shared.codecs.compression import Limits, decompressor, inflate
from shared.codecs.plain import Plain
from shared.errors import MessageRejected

_MAGIC = b"Obj\x01"
_SYNC = 16
_LARGEST = Limits(16 * 2**20)
_META = AvroSchema(b'{"type": "map", "values": "bytes"}')


class Container(Avro):
    """A container of one value; `application/avro`."""

    media_type = "application/avro"

    def __init__(self, schema: AvroSchema | None) -> None:
        """Write with *schema* and resolve what is read to it; None reads with the container's own schema."""
        self._schema = schema

    def read(self, content: bytes) -> Plain:
        """Return the only value of a container; raises MessageRejected unless there is exactly one."""
        values = read_container(content, self._schema)
        if len(values) != 1:
            problem = f"body is an Avro container of {len(values)} values, expected one (use split first)"
            raise MessageRejected(NOT_AVRO, problem)
        return values[0]

    def write(self, value: Plain) -> bytes:
        """Return a container of *value*."""
        if self._schema is None:
            raise ValueError("a container is written with a schema")
        return write_container(self._schema, [value])


def read_container(content: bytes, schema: AvroSchema | None = None, most: int | None = None) -> list[Plain]:
    """Return the values of a container, at most *most*, resolved to *schema* if given; raises MessageRejected."""
    writer, blocks = open_container(content, most)
    reader = schema or writer
    values: list[Plain] = []
    left = max(MOST_VALUES, len(content))
    for count, plain in blocks:
        left -= writer.count(plain, count, left)
        values += reader.read_several(plain, count, writer)
    return values


def single_values(content: bytes, most: int) -> list[bytes]:
    """Return a container for each value of a container, at most *most*, with its bytes; raises MessageRejected."""
    writer, blocks = open_container(content, most)
    found: list[bytes] = []
    left = max(MOST_VALUES, len(content))
    for count, plain in blocks:
        left -= writer.count(plain, count, left)
        values = writer.pieces(plain, count, max(MOST_VALUES, len(content)))
        if sum(map(len, values)) != len(plain):
            raise MessageRejected("TrailingBytes", "body has bytes after the end of its Avro")
        # Each has the schema: few bytes could become many.
        _LARGEST.check((len(found) + count) * len(writer.text) + len(plain), content)
        found += [_container(writer, 1, value) for value in values]
    return found


def open_container(content: bytes, most: int | None = None) -> tuple[AvroSchema, Iterator[tuple[int, bytes]]]:
    """Return the schema of a container, and its blocks as `_plain_blocks`; raises MessageRejected."""
    if not content.startswith(_MAGIC):
        raise MessageRejected(NOT_AVRO, "body is not an Avro container, expected it to begin with Obj and 01")
    entries, position = _metadata(content)
    schema = embedded_schema(entries.get("avro.schema", b""))
    return schema, _plain_blocks(content, entries.get("avro.codec", b"null"), position, most)


def _plain_blocks(content: bytes, codec: bytes, position: int, most: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield each block with the number of its values, decompressed within limits."""
    sync = content[position : position + _SYNC]
    size = values = 0
    for count, block in _blocks(content, position + _SYNC, sync):
        values += count
        if most is not None and values > most:
            raise MessageRejected("EnvelopeTooLarge", f"envelope holds more than {most} messages")
        plain = _decompressed(block, codec)
        if plain is not block:
            size += len(plain)
            _LARGEST.check(size, content)
        if count > len(plain) + 1:
            raise MessageRejected(NOT_AVRO, "body has a block of more values than it has bytes")
        yield count, plain


def write_container(schema: AvroSchema, values: Sequence[Plain]) -> bytes:
    """Return a container of one uncompressed block; the same values always give the same bytes."""
    return _container(schema, len(values), b"".join(map(schema.write, values)))


def _container(schema: AvroSchema, count: int, block: bytes) -> bytes:
    sync = md5(schema.text, usedforsecurity=False).digest()
    head = _MAGIC + _META.write({"avro.schema": schema.text, "avro.codec": b"null"}) + sync
    return b"".join((head, _long(count), _long(len(block)), block, sync))


def _metadata(content: bytes) -> tuple[dict[str, bytes], int]:
    """Return the entries of the header, and where they end."""
    entries: dict[str, bytes] = {}
    position = len(_MAGIC)
    while True:
        count, position = _number(content, position)
        if count < 0:
            # The size of the block follows, for readers that skip it.
            count, position = -count, _number(content, position)[1]
        if count == 0:
            return entries, position
        for _ in range(count):
            key, position = _piece(content, position)
            entry, position = _piece(content, position)
            entries[key.decode(errors="replace")] = entry


def _blocks(content: bytes, position: int, sync: bytes) -> Iterator[tuple[int, bytes]]:
    while position < len(content):
        count, position = _number(content, position)
        block, position = _piece(content, position)
        if count < 0 or content[position : position + _SYNC] != sync:
            raise _cut_off()
        position += _SYNC
        yield count, block


def _decompressed(block: bytes, codec: bytes) -> bytes:
    match codec:
        case b"null":
            return block
        case b"deflate":
            return inflate(block, _LARGEST)
        case b"zstandard":
            return decompressor("zstd", _LARGEST)(block)
    problem = "body is an Avro container with an unsupported codec, expected null, deflate or zstandard"
    raise MessageRejected(NOT_AVRO, problem)


def _piece(content: bytes, position: int) -> tuple[bytes, int]:
    """Return the bytes after their length, and where they end."""
    length, position = _number(content, position)
    if not 0 <= length <= len(content) - position:
        raise _cut_off()
    return content[position : position + length], position + length


def _number(content: bytes, position: int) -> tuple[int, int]:
    try:
        return read_long(content, position)
    except ValueError as error:
        raise _cut_off() from error


def _long(value: int) -> bytes:
    """Return the encoding of a number that is not negative."""
    value <<= 1
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - what fits into one byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _cut_off() -> MessageRejected:
    return MessageRejected(NOT_AVRO, "body is an Avro container that is damaged or cut off")
