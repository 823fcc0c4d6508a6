"""Addresses of Kafka brokers."""

import pytest

from shared.ends.kafka.endpoint import SETTING_FORM, kafka_endpoint, kafka_endpoint_of, kafka_fault

HUB = "Endpoint=sb://west.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=s3cret="
EMULATOR = "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=s3cret=;UseDevelopmentEmulator=true;"


@pytest.mark.parametrize(
    ("text", "servers", "protocol", "mechanism", "user", "password"),
    [
        ("kafka://localhost", "localhost:9092", "PLAINTEXT", None, None, ""),
        ("kafka://u:s3cret@[::1]", "[::1]:9092", "SASL_PLAINTEXT", "PLAIN", "u", "s3cret"),
        ("kafkas://h", "h:9093", "SSL", None, None, ""),
        ("kafkas://u:p%2F%3A%40@a:1,b", "a:1,b:9093", "SASL_SSL", "PLAIN", "u", "p/:@"),
        ("kafkas://u:@h/?mechanism=SCRAM-SHA-512", "h:9093", "SASL_SSL", "SCRAM-SHA-512", "u", ""),
        (HUB, "west.servicebus.windows.net:9093", "SASL_SSL", "PLAIN", "$ConnectionString", HUB),
        (EMULATOR, "localhost:9092", "SASL_PLAINTEXT", "PLAIN", "$ConnectionString", EMULATOR),
    ],
)
def test_an_address_becomes_options_of_librdkafka(  # noqa: PLR0917 - the columns
    text: str, servers: str, protocol: str, mechanism: str | None, user: str | None, password: str
) -> None:
    endpoint = kafka_endpoint(text)
    options = endpoint.options()
    assert (options.pop("ssl.ca.location", None) is not None) == protocol.endswith("SSL")
    expected = {"sasl.mechanism": mechanism} if mechanism else {}
    expected |= {"sasl.username": user, "sasl.password": password} if user else {}
    assert options == {"bootstrap.servers": servers, "security.protocol": protocol} | expected
    assert not password or password not in repr(endpoint)


def test_a_namespace_is_opened_with_the_identity_of_the_app() -> None:
    endpoint = kafka_endpoint_of("HUB", {"HUB__fullyQualifiedNamespace": "west.servicebus.windows.net"})
    assert endpoint.options()["sasl.mechanism"] == "OAUTHBEARER"
    assert endpoint.options()["security.protocol"] == "SASL_SSL"
    assert endpoint.namespace == "west.servicebus.windows.net"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker:9092", "is not a URL of Kafka brokers"),
        ("amqps://u:s3cret@h", "is not a URL of Kafka brokers"),
        ("kafkas://", "is not a URL of Kafka brokers"),
        ("kafkas://u:s3cret@h:port", "is not a URL of Kafka brokers"),
        ("kafkas://u:s3cret@a,,b", "is not a URL of Kafka brokers"),
        ("kafkas://u:s3cret@h/topic", "is not a URL of Kafka brokers"),
        ("kafkas://s3cret@h", "has only one of user and password"),
        ("kafkas://u:s3cret@h?mechanism=GSSAPI", "has an unknown option after the ?"),
        ("kafkas://u:s3cret@h?group=g", "has an unknown option after the ?"),
        ("kafka://u:s3cret@broker.example", "would send messages to broker.example:9092 unencrypted"),
        *(
            (
                f"Endpoint=sb://{host}/;SharedAccessKeyName=n;SharedAccessKey=s3cret=;UseDevelopmentEmulator=TRUE",
                f"would send the key and messages to {host} unencrypted",
            )
            for host in ("broker.example", "west.servicebus.windows.net", "localhost.evil.example", "10.0.0.1")
        ),
        (HUB + ";EntityPath=orders", "names one entity, orders, expected a namespace"),
        ("Endpoint=sb://h", "is not a connection string"),
    ],
)
def test_what_is_no_address_is_described_without_the_password(text: str, expected: str) -> None:
    fault = kafka_fault(text)
    assert fault is not None
    assert fault[0] == expected
    assert "s3cret" not in str(fault)
    problem = SETTING_FORM.problem("KAFKA", {"KAFKA": text})
    assert problem is not None
    assert problem.problem == f"the app setting {expected}"
    with pytest.raises(ValueError, match=expected):
        kafka_endpoint(text)


def test_a_setting_may_be_missing_or_name_a_namespace() -> None:
    assert SETTING_FORM.problem("HUB", {"HUB__fullyQualifiedNamespace": "west"}) is None
    assert str(SETTING_FORM.problem("HUB", {})).startswith("HUB: the app setting is missing (expected kafkas://")
