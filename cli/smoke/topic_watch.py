"""Where a message of a smoke test shows in Kafka: among the new records of a topic."""

import asyncio
from collections.abc import Mapping

from cli.kafka_consumer import TopicReader, taken_record
from cli.smoke.watches import Watch
from shared.ends.kafka.message import message_of
from shared.message.arrival import Origin
from shared.resend.letters import Letter

_SECONDS = 0.2


class TopicWatch(Watch):
    """Reads the records that come into a topic of Kafka after `start`."""

    place: Origin

    def __init__(self, site: str, setting: str, topic: str, settings: Mapping[str, str]) -> None:
        """Watch *topic* of the cluster in an app setting."""
        self.place = Origin(site, topic)
        self._reader = TopicReader(f"{site}/{topic}", setting, settings, topic)

    async def start(self) -> None:
        """Find the end of each partition; raises ConfigError."""
        await asyncio.to_thread(self._reader.start, at_end=True)

    async def look(self) -> list[Letter]:
        """Return the records since the last look; raises ConfigError."""
        found = await asyncio.to_thread(self._reader.read, _SECONDS)
        messages = (message_of(taken_record(each), self.place.site, self.place.entity) for each in found)
        return [Letter(message.encode(), self.place) for message in messages]

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._reader.close)
