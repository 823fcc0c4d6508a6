"""The store of the journals of all instances, which may refuse a record, or write it and say that it did not."""

import asyncio
from typing import TYPE_CHECKING

from shared.errors import TargetUnavailable
from shared.journal.sink import Stream
from tests.simulation.faults import Effect, Operation

if TYPE_CHECKING:
    from tests.simulation.instance import Instance
    from tests.simulation.world import World

_SLOW_SECONDS = 20.0


class SimulatedSink:
    """The sink of one instance."""

    def __init__(self, world: "World", owner: "Instance") -> None:
        """Append to the journal of *world*, which outlives the instance."""
        self.instance = owner.name
        self._world = world
        self._owner = owner

    async def append(self, stream: Stream, member: bytes) -> None:
        """Append a member, or raise TargetUnavailable."""
        network = self._world.network
        effect = network.faults.strike(Operation.RECORD, network.loop.time(), f"journal of {stream.task}")
        await asyncio.sleep(network.delay())
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
            self._world.journal.append(member)
        if effect is Effect.KILL_AFTER:
            self._owner.kill()
        await asyncio.sleep(network.delay())
        if effect is Effect.TWICE:
            raise TargetUnavailable("the journal did not answer")

    async def close(self) -> None:
        """Do nothing."""
