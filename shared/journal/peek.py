"""
Looking at a queue or subscription without taking anything from it.

What has been looked at is told by the last sequence number, which is kept beside the journal once the records are
there: a tap that ends in between looks at the same messages again. Of an entity that is partitioned, whose numbers do
not grow as one, and of what is consumed between two looks, a peek tells nothing.

The SDK hands peeked messages over decoded, and with some of their types lost. The encoded ones are in the answer to
the same request, which is made here over the connection that the SDK has for itself to list sessions: private to it,
and held by tests/contracts/test_peek_seam.py. Source: Microsoft Learn, "AMQP request/response operations".
"""

import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from azure.core.exceptions import AzureError
from azure.servicebus._common.constants import REQUEST_RESPONSE_PEEK_OPERATION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

from shared.amqp import map_section, sections
from shared.amqp.values import Malformed
from shared.errors import TargetUnavailable
from shared.journal.tap import Tap
from shared.message import Message, Origin

_LOGGER = logging.getLogger("busway.journal")

MESSAGES_AT_ONCE = 250
_TIMEOUT_SECONDS = 30.0
_SCHEDULED = 2
_OK, _NOTHING_THERE = 200, (202, 204)


class Marks(Protocol):
    """Keeps small texts by name, beside the journal."""

    async def read_mark(self, name: str) -> bytes | None:
        """Return what was written last, None for nothing."""
        ...

    async def write_mark(self, name: str, content: bytes) -> None:
        """Write in place of what was there."""
        ...


class PeekingTap:
    """A tap that is woken by a timer and looks at everything that has come since it last did."""

    def __init__(self, tap: Tap, place: Origin, open_client: Callable[[], ServiceBusClient], marks: Marks) -> None:
        """Look at the entity *place* and tell *tap*."""
        self._tap = tap
        self._place = place
        self._open_client = open_client
        self._marks = marks
        self._last: int | None = None

    async def look(self) -> int:
        """Look until nothing new is there; return how many messages were. Raises TargetUnavailable, TargetRefused."""
        if self._last is None:
            mark = await self._marks.read_mark(self._tap.name)
            self._last = 0 if mark is None else int(json.loads(mark)["sequence_number"])
        seen = 0
        async with self._open_client() as client:
            # The SDK leaves the function without types.
            connection: Any = client._create_session_browser(self._place.entity)  # type: ignore[no-untyped-call]
            try:
                while contents := await _peeked(connection, self._place, self._last + 1):
                    numbers = [_sequence_number(content, self._place) for content in contents]
                    there = [content for content in contents if not _is_scheduled(content)]
                    await self._tap.see(there)
                    last = max((number for number in numbers if number is not None), default=self._last)
                    if last <= self._last:
                        break
                    self._last = last
                    await self._marks.write_mark(self._tap.name, json.dumps({"sequence_number": self._last}).encode())
                    seen += len(there)
            finally:
                await connection.close()
        return seen


async def peeked(client: ServiceBusClient, place: Origin, *, scheduled: bool = False) -> AsyncIterator[list[bytes]]:
    """Yield all that *place* holds, encoded, with *scheduled* what is not yet due too; raises TargetUnavailable."""
    # The SDK leaves the function without types.
    connection: Any = client._create_session_browser(place.entity)  # type: ignore[no-untyped-call]
    last = 0
    try:
        while contents := await _peeked(connection, place, last + 1):
            yield [content for content in contents if scheduled or not _is_scheduled(content)]
            numbers = [_sequence_number(content, place) for content in contents]
            highest = max((number for number in numbers if number is not None), default=last)
            if highest <= last:
                break
            last = highest
    finally:
        await connection.close()


async def _peeked(connection: Any, place: Origin, first: int) -> list[bytes]:
    request = {
        "from-sequence-number": PyamqpTransportAsync.AMQP_LONG_VALUE(first),
        "message-count": MESSAGES_AT_ONCE,
    }
    try:
        answer = await connection._mgmt_request_response_with_retry(
            REQUEST_RESPONSE_PEEK_OPERATION, request, _messages, timeout=_TIMEOUT_SECONDS
        )
    except (AzureError, OSError) as error:
        where = f"{place.site}/{place.entity}"
        raise TargetUnavailable(f"{where}: it cannot be peeked, {type(error).__name__}") from error
    return [bytes(each[b"message"]) for each in answer]


def _messages(status_code: int, message: Any, description: object, amqp_transport: Any) -> list[Any]:
    """Return the messages in the answer to a request, as the SDK's own handlers do."""
    if status_code in _NOTHING_THERE:
        return []
    if status_code != _OK:
        condition = message.application_properties.get(b"errorCondition")
        amqp_transport.handle_amqp_mgmt_error(_LOGGER, "Message peek failed.", condition, description, status_code)
    return list(message.value[b"messages"])


def _sequence_number(content: bytes, place: Origin) -> int | None:
    try:
        return Message.received(content, place).arrival.sequence_number
    except Malformed:
        return None


def _is_scheduled(content: bytes) -> bool:
    """Tell whether a message is not there yet: it gets another number when it is."""
    try:
        state = map_section.entry(sections.split(content).message_annotations, "x-opt-message-state")
    except Malformed:
        return False
    return state is not None and state.payload == _SCHEDULED
