"""
The mock cluster of librdkafka: brokers with real sockets, in memory, for tests and for `busway start`.

`python -m cli.local_services.kafka TOPIC …` runs one until a signal, and prints `ready URL` once clients may connect.

It takes the produce and fetch requests of any Kafka client. It knows no authentication and forgets everything at its
end. Its functions are exported by the library that confluent-kafka brings (rdkafka_mock.h); Python's API has none.
"""

import argparse
import ctypes
import signal
from pathlib import Path
from typing import Any, Self

import confluent_kafka

PRODUCE = 0
_PRODUCER = 0
_ERROR_BYTES = 512
_PARTITIONS = 4


class KafkaCluster:
    """A running cluster; it ends with `close`."""

    def __init__(self, brokers: int = 1) -> None:
        """Start *brokers* on free ports of this machine."""
        self._library = _library()
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        configuration = self._library.rd_kafka_conf_new()
        for name, value in ((b"client.id", b"cluster"), (b"log_level", b"0"), (b"bootstrap.servers", b"127.0.0.1:1")):
            self._library.rd_kafka_conf_set(configuration, name, value, text, _ERROR_BYTES)
        self._client = self._library.rd_kafka_new(_PRODUCER, configuration, text, _ERROR_BYTES)
        if not self._client:
            raise RuntimeError(f"librdkafka: {text.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        # Consumer groups need not wait for more members.
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 100)
        self.servers: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        """The addresses of the brokers, as HOST:PORT,HOST:PORT."""

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; a topic that a consumer asks for is created by itself."""
        self._check(self._library.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1))

    def fail_requests(self, *codes: int, request: int = PRODUCE) -> None:
        """Answer the next requests of a kind with error codes of Kafka, one for each request."""
        self._library.rd_kafka_mock_push_request_errors(self._cluster, request, len(codes), *map(ctypes.c_int, codes))

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make *broker*, counted from 1, the leader of a partition."""
        self._check(self._library.rd_kafka_mock_partition_set_leader(self._cluster, topic.encode(), partition, broker))

    def set_down(self, broker: int) -> None:
        """Close the connections of a broker and refuse new ones."""
        self._check(self._library.rd_kafka_mock_broker_set_down(self._cluster, broker))

    def set_up(self, broker: int) -> None:
        """Accept connections again."""
        self._check(self._library.rd_kafka_mock_broker_set_up(self._cluster, broker))

    def set_round_trip(self, broker: int, milliseconds: int) -> None:
        """Delay the answers of a broker."""
        self._check(self._library.rd_kafka_mock_broker_set_rtt(self._cluster, broker, milliseconds))

    def requests(self, kind: int) -> int:
        """Return how many requests of a kind have come since `forget_requests`."""
        count = ctypes.c_size_t()
        found = self._library.rd_kafka_mock_get_requests(self._cluster, ctypes.byref(count))
        kinds = [self._library.rd_kafka_mock_request_api_key(found[each]) for each in range(count.value)]
        self._library.rd_kafka_mock_request_destroy_array(found, count)
        return kinds.count(kind)

    def forget_requests(self) -> None:
        """Count requests from now on."""
        self._library.rd_kafka_mock_start_request_tracking(self._cluster)
        self._library.rd_kafka_mock_clear_requests(self._cluster)

    def close(self) -> None:
        """Stop the brokers."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _check(code: int) -> None:
        if code:
            raise ValueError(f"librdkafka: error {code}")


def _library() -> Any:  # noqa: ANN401 - a library has the functions that it has
    package = Path(confluent_kafka.__file__).parent
    # The wheel for Linux has it beside the package, that for macOS in it.
    places = (*package.parent.glob("confluent_kafka.libs/librdkafka*"), *package.glob(".dylibs/librdkafka*"))
    if not places:
        raise RuntimeError(f"librdkafka is not beside {package}: install confluent-kafka from a wheel")
    library = ctypes.CDLL(str(places[0]))
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    signatures = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, size]),
        "rd_kafka_new": (pointer, [number, pointer, text, size]),
        "rd_kafka_destroy": (None, [pointer]),
        "rd_kafka_mock_cluster_new": (pointer, [pointer, number]),
        "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_cluster_bootstraps": (text, [pointer]),
        "rd_kafka_mock_cluster_destroy": (None, [pointer]),
        "rd_kafka_mock_topic_create": (number, [pointer, text, number, number]),
        # Further arguments follow these: the codes.
        "rd_kafka_mock_push_request_errors": (None, [pointer, ctypes.c_int16, size]),
        "rd_kafka_mock_partition_set_leader": (number, [pointer, text, ctypes.c_int32, ctypes.c_int32]),
        "rd_kafka_mock_start_request_tracking": (None, [pointer]),
        "rd_kafka_mock_clear_requests": (None, [pointer]),
        "rd_kafka_mock_get_requests": (ctypes.POINTER(pointer), [pointer, ctypes.POINTER(size)]),
        "rd_kafka_mock_request_api_key": (ctypes.c_int16, [pointer]),
        "rd_kafka_mock_request_destroy_array": (None, [ctypes.POINTER(pointer), size]),
        "rd_kafka_mock_broker_set_down": (number, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_broker_set_up": (number, [pointer, ctypes.c_int32]),
        "rd_kafka_mock_broker_set_rtt": (number, [pointer, ctypes.c_int32, number]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def main() -> None:
    """Create the topics of the command line in a cluster, and keep it until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m cli.local_services.kafka")
    parser.add_argument("topics", nargs="*")
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=_PARTITIONS)
    parser.add_argument("--round-trip", type=int, default=0, help="milliseconds by which the answers are late")
    options = parser.parse_args()
    ending = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    with KafkaCluster(options.brokers) as cluster:
        for topic in options.topics:
            cluster.create_topic(topic, options.partitions)
        for broker in range(1, options.brokers + 1):
            cluster.set_round_trip(broker, options.round_trip)
        print(f"ready kafka://{cluster.servers}", flush=True)
        signal.sigwait(ending)


if __name__ == "__main__":
    main()
