"""Reads the bytes of messages from a queue of an AMQP 1.0 broker, which no library passes on undecoded."""

import asyncio
import contextlib
import uuid

from shared.amqp.codec import decode, encode, items_of
from shared.amqp.scan import join_list
from shared.amqp.values import (
    FALSE,
    NULL,
    TRUE,
    Described,
    Value,
    array,
    described,
    list_,
    string,
    symbol,
    ubyte,
    uint,
    ulong,
)
from shared.azure.senders import amqp_frames as frames
from shared.azure.senders.amqp_endpoint import amqp_endpoint

_CREDIT = 1_000
_SECONDS = 20.0


async def read_all(
    url: str, address: str, *, quiet: float = 1.0, capability: str | None = None, most: int | None = None
) -> list[bytes]:
    """Return and remove the messages of a queue, until none has come for *quiet* seconds or there are *most*."""
    endpoint = amqp_endpoint(url)
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        async with asyncio.timeout(_SECONDS):
            writer.write(frames.SASL_HEADER)
            assert await reader.readexactly(8) == frames.SASL_HEADER
            await _frame(reader)
            writer.write(frames.sasl_init(endpoint.mechanism, endpoint.initial_response(), endpoint.host))
            await _frame(reader)
            writer.write(frames.AMQP_HEADER)
            assert await reader.readexactly(8) == frames.AMQP_HEADER
            writer.write(frames.open_frame(f"reading-{uuid.uuid4()}", endpoint.host_name) + frames.begin_frame())
            writer.write(_attach(address, capability))
        return await _messages(reader, writer, quiet, most)
    finally:
        writer.write(frames.close_frame())
        # Its answer comes after it has noted what was accepted.
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_SECONDS):
                while (await _frame(reader))[0] != frames.CLOSE:
                    pass
        writer.close()


async def _messages(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, quiet: float, most: int | None
) -> list[bytes]:
    found: list[bytes] = []
    parts: list[bytes] = []
    number = credited = incoming = 0
    is_attached = False
    while True:
        try:
            async with asyncio.timeout(quiet if is_attached else _SECONDS):
                code, fields, payload = await _frame(reader)
        except TimeoutError:
            if is_attached:
                return found
            raise
        if code == frames.BEGIN:
            incoming = int(str(fields[1].payload))
        elif code == frames.ATTACH:
            is_attached = True
            writer.write(_flow(incoming, 0))
        elif code in {frames.DETACH, frames.END, frames.CLOSE}:
            raise AssertionError(f"the broker ended the reading: {fields}")
        elif code == frames.TRANSFER:
            incoming = (incoming + 1) % 2**32
            parts.append(payload)
            if fields[1].payload is not None:
                number = int(str(fields[1].payload))
            if len(fields) > 5 and fields[5].payload is True:
                continue
            found.append(b"".join(parts))
            parts = []
            accepted = described(ulong(frames.ACCEPTED), list_([]))
            writer.write(_written(frames.DISPOSITION, [TRUE, uint(number), uint(number), TRUE, accepted]))
            if len(found) == most:
                return found
            if len(found) - credited >= _CREDIT // 2:
                credited = len(found)
                writer.write(_flow(incoming, credited))


def _attach(address: str, capability: str | None) -> bytes:
    outcomes = array(0xA3, [symbol("amqp:accepted:list")])
    capabilities = NULL if capability is None else array(0xA3, [symbol(capability)])
    source = described(ulong(0x28), list_([string(address), uint(1), *[NULL] * 7, outcomes, capabilities]))
    target = described(ulong(0x29), list_([string("reading")]))
    return _written(frames.ATTACH, [string("reading"), uint(0), TRUE, ubyte(0), ubyte(0), source, target])


def _flow(next_incoming: int, delivery_count: int) -> bytes:
    window = [uint(next_incoming), uint(2**31 - 1), uint(0), uint(2**31 - 1)]
    return _written(frames.FLOW, [*window, uint(0), uint(delivery_count), uint(_CREDIT), NULL, FALSE])


def _written(code: int, fields: list[Value]) -> bytes:
    body = join_list(b"\x00\x53" + code.to_bytes(), [encode(each) for each in fields])
    return (8 + len(body)).to_bytes(4) + b"\x02\x00\x00\x00" + body


async def _frame(reader: asyncio.StreamReader) -> tuple[int, tuple[Value, ...], bytes]:
    while True:
        head = await reader.readexactly(8)
        body = await reader.readexactly(int.from_bytes(head[:4]) - 8)
        if body:
            break
    value, stop = decode(body)
    assert isinstance(value.payload, Described)
    return int(str(value.payload.descriptor.payload)), items_of(value.payload.value), body[stop:]
