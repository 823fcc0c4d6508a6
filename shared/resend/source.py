"""Where a run has its messages from: an entity that is received from, or copies that stay where they are."""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Self

from shared.ends.azure_amqp.raw_link import Delivery
from shared.errors import TargetUnavailable
from shared.resend.letters import Letter


@dataclass(slots=True, eq=False)
class LockedMessage:
    """A locked message; the content of one that is not wanted is not kept."""

    key: str | None
    delivery: Delivery
    letter: Letter | None
    until: float
    """When its lock ends, a time of the event loop."""
    duration: float
    """The seconds for which it was locked."""

    @classmethod
    def without_lock(cls, key: str | None, letter: Letter) -> "LockedMessage":
        """Return a message that nobody can take while it is sent."""
        return cls(key, Delivery(letter.number or 0, b"", letter.content), letter, math.inf, 1.0)

    @property
    def left(self) -> float:
        """The part of its lock that is left."""
        return (self.until - asyncio.get_running_loop().time()) / self.duration

    def forget(self) -> None:
        """Drop the content."""
        self.delivery = self.delivery._replace(payload=b"")
        self.letter = None


class SessionUnavailable(TargetUnavailable):
    """A session that cannot be worked on now; the others can."""


class Source(ABC):
    """Where messages come from, locked or at least not lost: here without locks, and what is completed stays."""

    removes = False
    """Whether what is completed leaves the source; the ledger then has it as completed."""

    @abstractmethod
    async def receive(self, count: int, seconds: float) -> list[LockedMessage] | None:
        """Return some messages, about *count*, none if nothing comes for *seconds*, and None after the last one."""

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:  # noqa: ARG002 - they stay
        """Remove messages; return those that could not be removed."""
        return []

    async def give_back(self, messages: Iterable[LockedMessage]) -> None:  # noqa: B027 - no locks
        """Make messages available to other receivers again."""

    async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:  # noqa: ARG002 - no locks
        """Renew the locks that end soon; return the messages whose lock was lost."""
        return []

    def may_send(self, message: LockedMessage) -> bool:  # noqa: ARG002 - no locks
        """Return whether the lock lasts long enough to send the message and complete it."""
        return True


type OpenSource = Callable[[str | None], AbstractAsyncContextManager[Source]]
"""Opens the source, or one session of it; opening raises SessionUnavailable if that session is not free."""


class Supply(NamedTuple):
    """How a run gets at its source."""

    open: OpenSource
    by_session: bool | None = False
    """Whether it is opened for one session after the other; None: if the entity says so."""
    look: Callable[[], Awaitable[Collection[str]]] | None = None
    """Returns the keys of what is still there, to find out what another receiver has taken meanwhile."""


class CopySource(Source):
    """Copies that are read once, in their order, and that stay where they are."""

    def __init__(self, pages: AsyncGenerator[Iterable[tuple[str, Letter]]]) -> None:
        """Read the copies that *pages* yields, some at a time, each with its key."""
        self._pages = pages

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the pages."""
        await self._pages.aclose()

    async def receive(self, count: int, seconds: float) -> list[LockedMessage] | None:  # noqa: ARG002 - they are there
        """Return the next page."""
        async for page in self._pages:
            return [LockedMessage.without_lock(key, letter) for key, letter in page]
        return None


def copies(pages: AsyncGenerator[Iterable[tuple[str, Letter]]]) -> Supply:
    """Return the supply of the copies that *pages* yields, some at a time, each with its key."""
    return Supply(lambda _: CopySource(pages))
