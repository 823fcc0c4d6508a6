"""`busway receive` of a Kafka topic."""

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
        # Compressed, and with a schema's number in front; neither may be read as another record.
        producer.produce("readings", b"\x1f\x8b\x08\x00", key=b"\x00\xff", headers=[("id", b"\x00\x00\x00\xe9")])
        producer.produce("readings", b"\x00\x00\x00\x00\x07\xc3", key="ü")
        producer.flush(20)
        produce_with_header(cluster.servers, "readings", b"\xff", b"b")
        monkeypatch.setenv("STREAM", f"kafka://{cluster.servers}")
        assert list(records(PLACE, 20)) == [
            "61 0a ff (binary)  partition=0 key=k n=null z=1",
            "(tombstone)  partition=0 key=k",
            "1f 8b 08 00 (binary)  partition=0 key=00 ff (binary) id=00 00 00 e9 (binary)",
            "00 00 00 00 07 c3 (binary)  partition=0 key=ü",
            "b  partition=0 headers=(the name of one is not UTF-8)",
        ]


def test_a_setting_that_is_no_address_and_a_secret_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM", "amqps://h")
    with pytest.raises(ConfigError, match="STREAM: the app setting is not a URL of Kafka brokers"):
        list(records(PLACE, 1))
    with pytest.raises(ConfigError, match="has a secret and no setting"):
        list(records(Place("stream", Connection(kind="kafka", secret="stream"), "readings"), 1))
