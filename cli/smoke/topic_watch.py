"""Where a message of a smoke test shows in Kafka: among the new records of a topic."""

import asyncio
from collections.abc import Mapping
from typing import Any

from cli.kafka_consumer import TopicReader, headers_of
from cli.smoke.probes import MARK
from shared.amqp.codec import decode_all
from shared.amqp.sections import Sections, data
from shared.amqp.values import Malformed, string
from shared.ends.kafka.record import AMQP_MARK
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.resend.letters import Letter

_SECONDS = 0.2
_MESSAGE_ID = "amqp-message-id"


class TopicWatch:
    """Reads the records that come into a topic of Kafka after `start`."""

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
        return [Letter(_message(record, self.place), self.place) for record in found]

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.to_thread(self._reader.close)


def _message(record: Any, place: Origin) -> bytes:  # noqa: ANN401 - of confluent-kafka
    """Return an encoded message with what a smoke test looks for in a record."""
    message = Message(Sections(body=data(record.value() or b"")), Arrival(place))
    headers = dict(headers_of(record) or ())
    is_encoded = AMQP_MARK in headers
    identity, mark = (_text(headers.get(name), is_encoded=is_encoded) for name in (_MESSAGE_ID, MARK))
    if identity is not None:
        message.message_id = string(identity)
    if mark is not None:
        message.set_properties({MARK: string(mark)})
    if record.key() is not None:
        message.session_id = record.key().decode(errors="replace")
    return message.encode()


def _text(header: bytes | None, *, is_encoded: bool) -> str | None:
    if header is None:
        return None
    try:
        return str(decode_all(header).payload) if is_encoded else header.decode()
    except (Malformed, UnicodeDecodeError):
        return None
