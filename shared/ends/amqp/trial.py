"""
Finds out whether a message makes the broker close the connection, which some do instead of rejecting it.

A broker that restarts also closes connections, with the same condition or none. So a message is at fault only if it
ended several links that carried nothing else, while a link beside them that carried nothing stayed open.
"""

import asyncio
from collections.abc import Awaitable, Callable

from shared.amqp import sections
from shared.amqp.errors import UNAUTHORIZED_ACCESS, AmqpError, ConnectionClosed, Violation
from shared.ends.amqp.link import AmqpLink
from shared.ends.conditions import OVERLOADED, UNREACHABLE, reaction_to
from shared.printable import printable

QUIET_SECONDS = 1.0
_BREAKS = 3
# RabbitMQ 3 closes a connection 3 s after the error.
_SOON_SECONDS = 10.0
_MOST_BLAMED = 1_000
_USER_ID = 1  # the second of the properties
_NULL = b"\x40"
# The broker ends a connection or link with these for reasons of its own.
_NO_FAULT = frozenset(
    (
        "amqp:connection:forced",
        "amqp:connection:redirect",
        "amqp:illegal-state",
        "amqp:link:detach-forced",
        "amqp:link:redirect",
        "amqp:link:stolen",
        "amqp:resource-deleted",
        "amqp:resource-locked",
    )
)


class Unclear(Exception):
    """The broker closed a connection that carried no message, or later than it does because of one."""


class BreaksLinks(Exception):
    """The message is at fault."""


class Blame:
    """The messages that were alone in flight when the broker closed a link."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS) -> None:
        """Count the end of a link if the one beside it is still open after *quiet_seconds*."""
        self._quiet_seconds = quiet_seconds
        self.breaks: dict[int, int] = {}

    def __contains__(self, content: bytes) -> bool:
        """Return whether a message has to be tried."""
        return bool(self.breaks) and hash(content) in self.breaks

    def add(self, content: bytes) -> None:
        """Have a message tried before it is sent with others."""
        if len(self.breaks) >= _MOST_BLAMED:
            self.breaks.clear()  # messages that other instances have sent
        self.breaks.setdefault(hash(content), 0)

    async def try_(self, content: bytes, opened: Callable[[], Awaitable[AmqpLink]]) -> Exception | None:
        """
        Send a message alone over links of its own; return None if the broker accepts it, or the error.

        The error is BreaksLinks if the message is at fault. Raises as *opened* does, and Unclear; then its count starts
        again. After a cancellation the next call goes on.
        """
        name, failure, idle = hash(content), None, await opened()
        try:
            while self.breaks.setdefault(name, 0) < _BREAKS:
                link = await opened()
                try:
                    failure = await _answer(link, content)
                finally:
                    await link.close()
                if failure is None or failure is not link.failure or not may_be_because_of(content, failure):
                    self.breaks.pop(name, None)
                    return failure
                await asyncio.sleep(self._quiet_seconds)
                if idle.failure is not None:
                    raise Unclear("the broker closed a connection that carried no message") from idle.failure  # noqa: TRY301
                self.breaks[name] = self.breaks.get(name, 0) + 1
            # The broker takes connections after the last break too.
            await (await opened()).close()
        except Exception:
            self.breaks[name] = 0
            raise
        finally:
            await idle.close()
        self.breaks.pop(name, None)
        # The broker's own text may quote the message.
        reason = failure.condition if isinstance(failure, AmqpError) else ""
        what = f"the broker closes the connection because of it, {printable(reason or 'without a reason')}"
        return BreaksLinks(f"{what}: {_BREAKS} times after it was sent alone, while another connection stayed open")


async def _answer(link: AmqpLink, content: bytes) -> Exception | None:
    """Send *content* over *link* and return the answer."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Exception | None] = loop.create_future()
    started = loop.time()
    delivery = link.give(content, lambda _, failure: answer.set_result(failure))
    try:
        link.flush()
        failure = await answer
    finally:
        delivery.withdraw()
    if link.failure is not None and loop.time() - started > _SOON_SECONDS:
        raise Unclear("the broker closed the connection long after it got the message") from failure
    return failure


def may_be_because_of(content: bytes, failure: Exception) -> bool:
    """Return whether the broker ended a link with *failure* perhaps because of the message *content*."""
    if isinstance(failure, Violation):
        return False
    if isinstance(failure, AmqpError):
        condition = failure.condition
        if condition == UNAUTHORIZED_ACCESS:
            # RabbitMQ 4 allows no other user id than that of the connection.
            return _has_user_id(content)
        return condition not in _NO_FAULT and reaction_to(condition, UNREACHABLE) in {OVERLOADED, UNREACHABLE}
    return isinstance(failure, OSError) and not isinstance(failure, ConnectionClosed)


def _has_user_id(content: bytes) -> bool:
    fields = sections.fields_of(sections.split(content).properties)
    return len(fields) > _USER_ID and fields[_USER_ID] != _NULL
