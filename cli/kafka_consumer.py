"""A consumer of Kafka for commands: it reads what a topic has, and commits nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import confluent_kafka

from shared.azure.senders.kafka_endpoint import TOKENS, KafkaEndpoint, kafka_endpoint_of, kafka_setting_problem
from shared.errors import ConfigError, Problem
from shared.printable import printable

_METADATA_SECONDS = 10.0
_END = "_PARTITION_EOF"


class TopicReader:
    """Reads the records of a topic from all partitions; every method waits, and raises ConfigError."""

    def __init__(self, where: str, setting: str | None, settings: Mapping[str, str], topic: str) -> None:
        """Prepare to read *topic* of the cluster in an app setting; errors name it *where*."""
        self._where = where
        self._topic = topic
        self._setting = setting
        self._settings = settings
        self._errors: list[str] = []
        self._consumer: Any = None

    def start(self, *, at_end: bool = False) -> None:
        """Read all partitions from their beginning, or only what comes from now on."""
        self._consumer = confluent_kafka.Consumer(
            {
                **self._endpoint().options(),
                "group.id": "busway-reader",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
                "error_cb": lambda error: self._errors.append(error.str()),
            }
        )
        try:
            found = self._consumer.list_topics(self._topic, timeout=_METADATA_SECONDS).topics[self._topic]
            places = [confluent_kafka.TopicPartition(self._topic, each, 0) for each in found.partitions]
            if at_end:
                for each in places:
                    _, each.offset = self._consumer.get_watermark_offsets(each, timeout=_METADATA_SECONDS)
        except confluent_kafka.KafkaException as error:
            raise self._problem(error.args[0]) from error
        if found.error is not None:
            raise self._problem(found.error)
        self._consumer.assign(places)

    def read(self, seconds: float) -> Sequence[Any]:
        """Return the records that come within a time, as soon as there is one; none at its end."""
        found = []
        for message in self._consumer.consume(num_messages=500, timeout=seconds):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.name() != _END:
                raise self._problem(error)
        return found

    def close(self) -> None:
        """Close the connections, also without a start."""
        if self._consumer is not None:
            self._consumer.close()

    def _endpoint(self) -> KafkaEndpoint:
        if self._setting is None:
            raise ConfigError([Problem(self._where, "has a secret and no setting, which this command needs")])
        problem = kafka_setting_problem(self._setting, self._settings)
        if problem is not None:
            raise ConfigError([problem])
        endpoint = kafka_endpoint_of(self._setting, self._settings)
        if endpoint.mechanism == TOKENS:
            hint = "set its app setting to a connection string to read it here"
            raise ConfigError([Problem(self._where, "has no password", hint)])
        return endpoint

    def _problem(self, error: Any) -> ConfigError:  # noqa: ANN401 - of confluent-kafka
        reason = (self._errors or [error.str()])[-1]
        return ConfigError([Problem(self._where, f"cannot be read: {printable(reason)}")])
