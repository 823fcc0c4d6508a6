"""The place to which a journal writes."""

from typing import NamedTuple, Protocol, runtime_checkable

from shared.journal.record import Role
from shared.stores.blobs import Container


class Stream(NamedTuple):
    """The records of one side of a task, which go into one series of files."""

    task: str
    role: Role


class Sink(Protocol):
    """
    A place to which gzip members with records are appended.

    Raises: `append` raises TargetUnavailable or TargetRefused if the member may not have been written.
    """

    @property
    def instance(self) -> str:
        """The name of the writing instance, as in every record."""
        ...

    async def append(self, stream: Stream, member: bytes) -> None:
        """Append JSON lines as one or more gzip members."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


@runtime_checkable
class Readable(Protocol):
    """A sink whose records can be read, also those of other instances."""

    def container(self) -> Container:
        """Return the container that they are in."""
        ...
