"""`busway receive` of a Kafka topic."""

from pathlib import Path

import pytest
from confluent_kafka import Producer

from cli.kafka_receive import records
from cli.local_services.kafka import KafkaCluster
from cli.places import Place
from shared.errors import ConfigError
from shared.tasks.models import Connection
from tests.raw_kafka import produce_with_header

PLACE = Place("stream", Connection(kind="kafka", setting="STREAM"), "readings")


def test_records_are_lines_with_key_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaCluster() as cluster:
        cluster.create_topic("readings", 1)
        producer = Producer({"bootstrap.servers": cluster.servers})
        producer.produce("readings", b"a\n\xff", key=b"k", headers=[("z", b"1"), ("n", None)])
        producer.produce("readings", None, key=b"k")
        producer.flush(20)
        produce_with_header(cluster.servers, "readings", b"\xff", b"b")
        monkeypatch.setenv("STREAM", f"kafka://{cluster.servers}")
        assert list(records(PLACE, 20)) == [
            "a\\n\ufffd  partition=0 key=k n=null z=1",
            "(tombstone)  partition=0 key=k",
            "b  partition=0 headers=(the name of one is not UTF-8)",
        ]


def test_a_setting_that_is_no_address_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM", "amqps://h")
    with pytest.raises(ConfigError, match="STREAM: the app setting is not a URL of Kafka brokers"):
        list(records(PLACE, 1))


def test_a_secret_is_not_read_here(tmp_path: Path) -> None:
    place = Place("stream", Connection(kind="kafka", secret="stream"), str(tmp_path))
    with pytest.raises(ConfigError, match="has a secret and no setting"):
        list(records(place, 1))
