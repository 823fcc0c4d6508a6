"""The store of the journals of all instances, which may refuse a record, or write it and say that it did not."""

import asyncio
from typing import TYPE_CHECKING

from shared.errors import TargetUnavailable
from shared.journal.sink import Stream
from shared.stores.blobs import Listed, Listing
from tests.simulation.faults import Effect, Operation
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.world import World

_SLOW_SECONDS = 20.0


class SimulatedSink:
    """The sink of one instance."""

    def __init__(self, world: "World", owner: Process) -> None:
        """Append to the journal of *world*, which outlives the instance."""
        self.instance = owner.name
        self._world = world
        self._owner = owner

    async def append(self, stream: Stream, member: bytes) -> None:
        """Append a member, or raise TargetUnavailable."""
        network = self._world.network
        effect = network.faults.strike(Operation.RECORD, network.loop.time(), f"journal of {stream.task}")
        await asyncio.sleep(network.delay())
        if effect is not None or not self._world.has_journal:
            self._owner.is_forgetful = True
        if not self._world.has_journal:
            raise TargetUnavailable("the journal is away")
        match effect:
            case Effect.REFUSED:
                raise TargetUnavailable("the journal cannot be written")
            case Effect.KILL_BEFORE:
                self._owner.kill()
            case Effect.SLOW:
                await asyncio.sleep(_SLOW_SECONDS)
            case _:
                pass
        if not self._owner.is_dead:
            self._world.write(stream, self.instance, member)
        if effect is Effect.KILL_AFTER:
            self._owner.kill()
        await asyncio.sleep(network.delay())
        if effect is Effect.TWICE:
            raise TargetUnavailable("the journal did not answer")

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

    async def _read(self, name: str) -> None:
        network = self._world.network
        effect = network.faults.strike(Operation.READ, network.loop.time(), f"journal {name}")
        await asyncio.sleep(network.delay())
        if effect is Effect.KILL_BEFORE:
            self._owner.kill()
        if effect is Effect.SLOW:
            self._owner.is_forgetful = True
            await asyncio.sleep(_SLOW_SECONDS)
        if effect is Effect.REFUSED or not self._world.has_journal:
            self._owner.is_forgetful = True
            raise TargetUnavailable("the journal cannot be read")
