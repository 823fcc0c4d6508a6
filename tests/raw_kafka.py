"""Records that Python's client for Kafka cannot write, sent with the library below it."""

import ctypes
from pathlib import Path

import confluent_kafka

_PRODUCER = 0
_END, _TOPIC, _VALUE, _HEADERS = 0, 1, 4, 10
_ERROR_BYTES = 512
_MILLISECONDS = 20_000


def produce_with_header(servers: str, topic: str, name: bytes, value: bytes) -> None:
    """Send a record with a header whose name is any bytes."""
    [path] = Path(confluent_kafka.__file__).parent.parent.glob("confluent_kafka.libs/librdkafka*")
    library = ctypes.CDLL(str(path))
    for function in (library.rd_kafka_conf_new, library.rd_kafka_new, library.rd_kafka_headers_new):
        function.restype = ctypes.c_void_p
    text = ctypes.create_string_buffer(_ERROR_BYTES)
    configuration = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(configuration, b"bootstrap.servers", servers.encode(), text, _ERROR_BYTES)
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, configuration, text, _ERROR_BYTES))
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
    library.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"v", ctypes.c_ssize_t(1))
    parts = (_TOPIC, topic.encode(), _VALUE, value, ctypes.c_size_t(len(value)), _HEADERS, headers, _END)
    assert library.rd_kafka_producev(producer, *parts) == 0
    assert library.rd_kafka_flush(producer, _MILLISECONDS) == 0
    library.rd_kafka_destroy(producer)
