"""The lines that `busway receive` prints of a Kafka topic."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from cli.kafka_consumer import TopicReader, headers_of
from cli.places import Place
from shared.message.view import bytes_text
from shared.printable import printable

_QUIET_SECONDS = 1.0
_LONGEST_READ = 0.2


def records(place: Place, wait: float) -> Iterator[str]:
    """Yield a line for each record of a topic, by partition and offset; nothing is committed. Raises ConfigError."""
    reader = TopicReader(str(place), place.connection.setting, os.environ, place.path)
    with contextlib.closing(reader):
        reader.start()
        found: list[Any] = []
        end = time.monotonic() + wait
        while time.monotonic() < end:
            more = reader.read(_LONGEST_READ)
            if more:
                found += more
                end = time.monotonic() + _QUIET_SECONDS
        for each in sorted(found, key=lambda each: (each.partition(), each.offset())):
            yield printable(_line(each))


def _line(message: Any) -> str:  # noqa: ANN401 - of confluent-kafka
    body = "(tombstone)" if message.value() is None else bytes_text(message.value())
    pairs = [("partition", str(message.partition()))]
    if message.key() is not None:
        pairs.append(("key", bytes_text(message.key())))
    headers = headers_of(message)
    if headers is None:
        pairs.append(("headers", "(the name of one is not UTF-8)"))
    pairs += sorted((name, "null" if value is None else bytes_text(value)) for name, value in headers or ())
    return f"{body}  {' '.join(f'{name}={value}' for name, value in pairs)}"
