"""Where the members of a journal go."""

from typing import NamedTuple, Protocol

from shared.journal.record import Role


class Stream(NamedTuple):
    """What goes into one series of files: the records of one side of a task."""

    task: str
    role: Role


class Sink(Protocol):
    """
    A place that keeps what is appended to it.

    Raises: `append` raises TargetUnavailable or TargetRefused if the member may not have been written.
    """

    @property
    def instance(self) -> str:
        """Return the name of the writing instance, as in every record."""
        ...

    async def append(self, stream: Stream, member: bytes) -> None:
        """Keep JSON lines as a gzip member, or several of them as one."""
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...
