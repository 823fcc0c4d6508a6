"""The lines that `busway receive` prints of a Kafka topic."""

import os
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka

from cli.places import Place
from shared.azure.senders.kafka_endpoint import TOKENS, kafka_endpoint_of, kafka_setting_problem
from shared.errors import ConfigError, Problem
from shared.printable import printable

_QUIET_SECONDS = 1.0
_METADATA_SECONDS = 10.0
_END = "_PARTITION_EOF"


def records(place: Place, wait: float) -> Iterator[str]:
    """Yield a line for each record of a topic, by partition and offset; nothing is committed. Raises ConfigError."""
    setting = place.connection.setting
    problem = (
        Problem(str(place), "has a secret and no setting, which this command needs")
        if setting is None
        else kafka_setting_problem(setting, os.environ)
    )
    endpoint = kafka_endpoint_of(setting or "", os.environ) if problem is None else None
    if endpoint is not None and endpoint.mechanism == TOKENS:
        problem = Problem(str(place), "has no password", "set its app setting to a connection string to read it here")
    if problem is not None or endpoint is None:
        raise ConfigError([problem] if problem is not None else [])
    errors: list[str] = []
    consumer = confluent_kafka.Consumer(
        {
            **endpoint.options(),
            "group.id": "busway-receive",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
            "error_cb": lambda error: errors.append(error.str()),
        }
    )
    try:
        yield from (printable(_line(each)) for each in _all(consumer, place.path, wait))
    except confluent_kafka.KafkaException as error:
        reason = (errors or [error.args[0].str()])[-1]
        raise ConfigError([Problem(str(place), f"cannot be read: {printable(reason)}")]) from error
    finally:
        consumer.close()


def _all(consumer: Any, topic: str, wait: float) -> list[Any]:  # noqa: ANN401 - of confluent-kafka
    """Return what a topic has when nothing new has come for a while; waits up to *wait* seconds for the first."""
    found = consumer.list_topics(topic, timeout=_METADATA_SECONDS).topics[topic]
    if found.error is not None:
        raise confluent_kafka.KafkaException(found.error)
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in found.partitions])
    taken: list[Any] = []
    end = time.monotonic() + wait
    while (left := end - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is None or (message.error() is not None and message.error().name() == _END):
            continue
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        taken.append(message)
        end = time.monotonic() + _QUIET_SECONDS
    return sorted(taken, key=lambda each: (each.partition(), each.offset()))


def _line(message: Any) -> str:  # noqa: ANN401 - of confluent-kafka
    body = "(tombstone)" if message.value() is None else _text(message.value())
    pairs = [("partition", str(message.partition()))]
    if message.key() is not None:
        pairs.append(("key", _text(message.key())))
    pairs += sorted((name, "null" if value is None else _text(value)) for name, value in message.headers() or ())
    return f"{body}  {' '.join(f'{name}={value}' for name, value in pairs)}"


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
