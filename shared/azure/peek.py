"""
Looking at a queue or subscription without taking anything from it.

What has been looked at is told by the last sequence number, which is kept beside the journal once the records are
there: a tap that ends in between looks at the same messages again. An entity that was deleted and made anew counts from
1 again: it is known by messages under numbers that have been looked at, but enqueued later than any of those. Of an
entity that is partitioned, whose numbers do not grow as one, and of what is consumed between two looks, a peek tells
nothing.

The SDK hands peeked messages over decoded, and with some of their types lost. The encoded ones are in the answer to
the same request, which is made here over the connection that the SDK has for itself to list sessions: private to it,
and held by tests/contracts/test_peek_seam.py. Source: Microsoft Learn, "AMQP request/response operations".
"""

import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, NamedTuple, Protocol, Self

from azure.core.exceptions import AzureError
from azure.servicebus._common.constants import REQUEST_RESPONSE_PEEK_OPERATION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync

from shared.amqp import map_section, sections
from shared.amqp.values import Malformed
from shared.errors import TargetUnavailable
from shared.journal.tap import Tap
from shared.message.message import Arrival, Message, Origin

_LOGGER = logging.getLogger("busway.journal")

MESSAGES_AT_ONCE = 250
# The first of an entity, which at each look say whether it is still the same one; more, as some may be scheduled.
_FIRST_MESSAGES = 10
_TIMEOUT_SECONDS = 30.0
_ACTIVE, _SCHEDULED = 0, 2
_OK, _NOTHING_THERE = 200, (202, 204)


class Marks(Protocol):
    """Keeps small texts by name, beside the journal."""

    async def read_mark(self, name: str) -> bytes | None:
        """Return what was written last, None for nothing."""
        ...

    async def write_mark(self, name: str, content: bytes) -> None:
        """Write in place of what was there."""
        ...


class _Mark(NamedTuple):
    """How far a tap has looked: the last number, and the latest time (ms) at which any of the messages was enqueued."""

    sequence_number: int = 0
    enqueued_time: int = 0

    @classmethod
    def read(cls, content: bytes | None) -> Self:
        """Return what was written, the beginning where that does not tell of which entity it is."""
        told = {} if content is None else json.loads(content)
        return cls(told["sequence_number"], told["enqueued_time"]) if "enqueued_time" in told else cls()

    def behind(self, looked_at: Sequence[Arrival], there: Sequence[Arrival]) -> Self:
        """Return the mark behind these as well; those that are not *there* yet were not enqueued."""
        numbers = [each.sequence_number for each in looked_at if each.sequence_number is not None]
        times = [each.enqueued_time for each in there if each.enqueued_time is not None]
        return type(self)(max(numbers, default=self.sequence_number), max([self.enqueued_time, *times]))

    def is_of_another(self, arrival: Arrival) -> bool:
        """Tell whether a message cannot be of the entity that has been looked at."""
        number, enqueued = arrival.sequence_number, arrival.enqueued_time
        return number is not None and number <= self.sequence_number and (enqueued or 0) > self.enqueued_time


class PeekingTap:
    """A tap that is woken by a timer and looks at everything that has come since it last did."""

    def __init__(self, tap: Tap, place: Origin, open_client: Callable[[], ServiceBusClient], marks: Marks) -> None:
        """Look at the entity *place* and tell *tap*."""
        self._tap = tap
        self._place = place
        self._open_client = open_client
        self._marks = marks
        self._mark: _Mark | None = None

    async def look(self) -> int:
        """Look until nothing new is there; return how many messages were. Raises TargetUnavailable, TargetRefused."""
        if self._mark is None:
            self._mark = _Mark.read(await self._marks.read_mark(self._tap.name))
        seen = 0
        async with self._open_client() as client:
            # The SDK leaves the function without types.
            connection: Any = client._create_session_browser(self._place.entity)  # type: ignore[no-untyped-call]
            try:
                if await self._is_made_anew(connection, self._mark):
                    told = "has been deleted and made anew, and is looked at from its beginning"
                    _LOGGER.warning("%s: %s/%s %s", self._tap.name, self._place.site, self._place.entity, told)
                    self._mark = _Mark()
                while contents := await _peeked(connection, self._place, self._mark.sequence_number + 1):
                    there = [content for content in contents if not _is_scheduled(content)]
                    await self._tap.see(there)
                    mark = self._mark.behind(_arrivals(contents, self._place), _arrivals(there, self._place))
                    if mark.sequence_number <= self._mark.sequence_number:
                        break
                    self._mark = mark
                    await self._marks.write_mark(self._tap.name, json.dumps(mark._asdict()).encode())
                    seen += len(there)
            finally:
                await connection.close()
        return seen

    async def _is_made_anew(self, connection: Any, mark: _Mark) -> bool:
        if mark.sequence_number == 0:
            return False
        first = await _peeked(connection, self._place, 1, count=_FIRST_MESSAGES)
        there = [content for content in first if not _is_scheduled(content)]
        return any(map(mark.is_of_another, _arrivals(there, self._place)))


async def peeked(client: ServiceBusClient, place: Origin, *, scheduled: bool = False) -> AsyncGenerator[list[bytes]]:
    """Yield all that *place* holds, encoded, with *scheduled* what is not yet due too; raises TargetUnavailable."""
    # The SDK leaves the function without types.
    connection: Any = client._create_session_browser(place.entity)  # type: ignore[no-untyped-call]
    last = 0
    try:
        while contents := await _peeked(connection, place, last + 1):
            yield [content for content in contents if scheduled or not _is_scheduled(content)]
            numbers = [each.sequence_number for each in _arrivals(contents, place)]
            highest = max((number for number in numbers if number is not None), default=last)
            if highest <= last:
                break
            last = highest
    finally:
        await connection.close()


async def first_messages(client: ServiceBusClient, place: Origin, count: int) -> list[bytes]:
    """
    Return the first *count* messages that the entity *place* would deliver, encoded, and leave them where they are.

    Those scheduled for later, and those deferred, are not among them. Raises TargetUnavailable.
    """
    found: list[bytes] = []
    async with contextlib.aclosing(peeked(client, place)) as batches:
        async for contents in batches:
            found += [content for content in contents if _state(content) == _ACTIVE]
            if len(found) >= count:
                break
    return found[:count]


async def _peeked(connection: Any, place: Origin, first: int, *, count: int = MESSAGES_AT_ONCE) -> list[bytes]:
    request = {
        "from-sequence-number": PyamqpTransportAsync.AMQP_LONG_VALUE(first),
        "message-count": count,
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


def _arrivals(contents: Sequence[bytes], place: Origin) -> list[Arrival]:
    """Return what the service says of messages, of those that can be read."""
    found = []
    for content in contents:
        with contextlib.suppress(Malformed):
            found.append(Message.received(content, place).arrival)
    return found


def _is_scheduled(content: bytes) -> bool:
    """Tell whether a message is not there yet: it gets another number when it is."""
    return _state(content) == _SCHEDULED


def _state(content: bytes) -> object:
    """Return the state that the service says a message is in; what cannot be read is there, as all others."""
    try:
        state = map_section.entry(sections.split(content).message_annotations, "x-opt-message-state")
    except Malformed:
        return _ACTIVE
    return _ACTIVE if state is None else state.payload
