"""The storage account of all instances: journals, and the stores of editors. It may write, and say that it did not."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from host.checkpoints import Partition
from shared.errors import TargetUnavailable
from shared.journal.sink import Stream
from shared.stores.blobs import Blob, Listed, Listing, Tail, TooLarge, Unchanged
from shared.stores.documents import Changed
from shared.stores.host_checkpoints import HostCheckpoint
from tests.simulation.faults import LONGEST_SECONDS, Effect, Operation
from tests.simulation.hub_source import HubSource
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

_SLOW_SECONDS = 20.0
_FULL = 48
"""The bytes after which nothing more can be appended to a blob of an editor: two ids."""


@dataclass
class Stored:
    """What editors and readers of hubs have stored."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    documents: dict[str, Blob] = field(default_factory=dict)
    read_to: dict[tuple[str, str], HostCheckpoint] = field(default_factory=dict)
    """Where a reader goes on, by hub and partition."""


class _Account:
    """The storage account as one instance uses it."""

    def __init__(self, world: "World", owner: Process) -> None:
        """Use that of *world*, which outlives the instance."""
        self._world = world
        self._owner = owner

    async def _write(self, where: str, act: Callable[[], object]) -> None:
        """Let the account *act*, or raise TargetUnavailable."""
        network = self._world.network
        effect = network.faults.strike(Operation.RECORD, network.loop.time(), where)
        if effect is Effect.AWAY:
            self._world.lose_journal(network.chance.random() ** 2 * LONGEST_SECONDS)
        await asyncio.sleep(network.delay())
        if effect is not None or not self._world.has_journal:
            self._owner.is_forgetful = True
        if not self._world.has_journal:
            raise TargetUnavailable("the storage account is away")
        match effect:
            case Effect.REFUSED:
                raise TargetUnavailable("the storage account cannot be written")
            case Effect.KILL_BEFORE:
                self._owner.kill()
            case Effect.SLOW:
                # A delivery may not wait so long for the store of an editor.
                self._owner.is_forgetful |= where.startswith("store")
                await asyncio.sleep(_SLOW_SECONDS)
            case _:
                pass
        if not self._owner.is_dead:
            act()
        if effect is Effect.KILL_AFTER:
            self._owner.kill()
        await asyncio.sleep(network.delay())
        if effect is Effect.TWICE:
            raise TargetUnavailable("the storage account did not answer")

    async def _read(self, where: str) -> None:
        """Let the account answer, or raise TargetUnavailable."""
        network = self._world.network
        effect = network.faults.strike(Operation.READ, network.loop.time(), where)
        await asyncio.sleep(network.delay())
        if effect is Effect.KILL_BEFORE:
            self._owner.kill()
        if effect is Effect.SLOW:
            self._owner.is_forgetful = True
            await asyncio.sleep(_SLOW_SECONDS)
        if effect is Effect.REFUSED or not self._world.has_journal:
            self._owner.is_forgetful = True
            raise TargetUnavailable("the storage account cannot be read")


class SimulatedSink(_Account):
    """The sink of one instance."""

    def __init__(self, world: "World", owner: Process) -> None:
        """Append to the journal of *world*."""
        super().__init__(world, owner)
        self.instance = owner.name

    async def append(self, stream: Stream, member: bytes) -> None:
        """Append a member, or raise TargetUnavailable."""
        await self._write(f"journal of {stream.task}", lambda: self._world.write(stream, self.instance, member))

    async def close(self) -> None:
        """Do nothing."""

    def container(self) -> "SimulatedSink":
        """Return itself, which reads the blobs of all instances."""
        return self

    async def folders(self, prefix: str) -> list[str]:
        """Return nothing: only a search through all tasks asks."""
        raise NotImplementedError(prefix)

    async def listed(self, prefix: str) -> Listing:
        """Return the blobs that start with *prefix*, or raise TargetUnavailable."""
        await self._read(prefix)
        world = self._world
        found = [
            Listed(name, at, len(content)) for name, (at, content) in world.blobs.items() if name.startswith(prefix)
        ]
        return Listing(found, None)

    async def part(self, name: str, position: int, length: int) -> bytes:
        """Return a part of a blob, or raise TargetUnavailable."""
        await self._read(name)
        return bytes(self._world.blobs[name][1][position : position + length])


class SimulatedCheckpoints(_Account):
    """The checkpoints of a task that reads its hub itself, as `HostCheckpoints`."""

    def __init__(self, world: "World", owner: Process, hub: HubSource) -> None:
        """Keep those of *hub*."""
        super().__init__(world, owner)
        self._hub = hub

    async def read(self, partition: str) -> HostCheckpoint | None:
        """Return the checkpoint of a partition, None before the first."""
        await self._read(f"checkpoint {partition}")
        return self._world.stored.read_to.get((self._hub.name, partition))

    async def write(self, partition: str, offset: str, number: int, version: str | None) -> str:
        """Replace *version*, None for a new one, and return the new one; raises Changed."""
        world, place = self._world, (self._hub.name, partition)
        new = HostCheckpoint(offset, number, str(int(version or 0) + 1))

        def replace() -> None:
            found = world.stored.read_to.get(place)
            if (None if found is None else found.version) != version:
                raise Changed(partition)
            world.stored.read_to[place] = new
            hub = self._hub
            world.checkpoints.set(Partition(hub.connection_name, hub.name, hub.consumer_group, partition), offset)

        await self._write(f"checkpoint {partition}", replace)
        return str(new.version)


class SimulatedDocuments(_Account):
    """The store of an editor that writes what it has read."""

    async def read_all(self, name: str) -> Blob | None:
        """Return a document, None if missing."""
        await self._read(f"store {name}")
        return self._world.stored.documents.get(name)

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        """Replace *version*, None for a new document, and return the new version; raises Changed."""
        documents, new = self._world.stored.documents, str(int(version or 0) + 1)

        def replace() -> None:
            found = documents.get(name)
            if (None if found is None else found.version) != version:
                raise Changed(name)
            documents[name] = Blob(content, new)

        await self._write(f"store {name}", replace)
        return new


class SimulatedBlobs(_Account):
    """The store of an editor."""

    url = "simulated"

    async def write(self, name: str, content: bytes, content_type: str | None = None) -> None:  # noqa: ARG002 - nobody reads the type
        """Write all of a blob."""
        await self._write(f"store {name}", lambda: self._world.stored.blobs.update({name: content}))

    async def read(
        self,
        name: str,
        *,
        limit: int,
        known_version: str | None = None,
    ) -> Blob | Unchanged | TooLarge | None:
        """Return a blob, None if missing."""
        assert known_version is None
        await self._read(f"store {name}")
        content = self._world.stored.blobs.get(name)
        if content is None:
            return None
        return Blob(content, name) if len(content) <= limit else TooLarge(len(content))

    async def delete(self, name: str) -> None:
        """Delete a blob."""
        await self._write(f"store {name}", lambda: self._world.stored.blobs.pop(name, None))

    async def append(self, name: str, content: bytes) -> bool:
        """Append to a blob; each is full after some appends."""
        stored = self._world.stored.blobs
        if len(stored.get(name, b"")) >= _FULL:
            return False
        await self._write(f"store {name}", lambda: stored.update({name: stored.get(name, b"") + content}))
        return True

    async def tail(self, name: str, position: int) -> Tail:
        """Return what has been appended from byte *position* on."""
        await self._read(f"store {name}")
        content = self._world.stored.blobs.get(name, b"")
        return Tail(content[position:], len(content) >= _FULL)

    async def names(self, prefix: str) -> list[str]:
        """Return the names that start with *prefix*, sorted."""
        await self._read(f"store {prefix}")
        return sorted(name for name in self._world.stored.blobs if name.startswith(prefix))
