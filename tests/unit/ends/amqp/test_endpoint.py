"""The URL of an AMQP 1.0 broker."""

import pytest

from shared.ends.amqp.endpoint import AmqpEndpoint, amqp_endpoint, amqp_url_fault


def shown(endpoint: AmqpEndpoint) -> tuple[str, int, bool, bytes, str]:
    response = endpoint.initial_response()
    return endpoint.host, endpoint.port, endpoint.is_encrypted, response, endpoint.host_name


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqps://broker.example", ("broker.example", 5671, True, b"", "broker.example")),
        ("amqps://u:p@h:1234/", ("h", 1234, True, b"\0u\0p", "h")),
        ("amqps://u%40x:p%2F%3A%25@h", ("h", 5671, True, b"\0u@x\0p/:%", "h")),
        ("amqp://u:p@127.0.0.1", ("127.0.0.1", 5672, False, b"\0u\0p", "127.0.0.1")),
        ("amqp://[::1]:7", ("::1", 7, False, b"", "::1")),
        ("amqps://u:p@rabbit/east%2Fone", ("rabbit", 5671, True, b"\0u\0p", "vhost:east/one")),
    ],
)
def test_a_url_names_host_port_user_and_virtual_host(url: str, expected: object) -> None:
    assert shown(amqp_endpoint(url)) == expected


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("Endpoint=sb://h/;SharedAccessKey=s3cret", "is not a URL of an AMQP broker"),
        ("https://u:s3cret@h", "is not a URL of an AMQP broker"),
        ("amqps://u:s3cret@", "is not a URL of an AMQP broker"),
        ("amqps://u:s3cret@h:port", "is not a URL"),
        ("amqps://u:s3cret@[h", "is not a URL"),
        ("amqps://s3cret@h", "has only one of user and password"),
        ("amqps://@h", "has only one of user and password"),
        ("amqps://:s3cret@h", "has only one of user and password"),
        ("amqps://u:s3cret@h?x=s3cret", "has a ?, # or @ after the host"),
        ("amqps://u:12/s3cret@h", "has a ?, # or @ after the host"),
        ("amqp://u:12/s3cret@h", "has a ?, # or @ after the host"),
        ("amqps://u:s3cret@h:0", "is not a URL"),
        ("amqps://u:s3cret@h:70000", "is not a URL"),
        ("amqps://u:s3cret%FF@h", "is not a URL"),
        ("amqps://u:s3cret@broker..example", "has a host that is not valid"),
        (f"amqps://u:s3cret@{'x' * 64}.example", "has a host that is not valid"),
        ("amqps://u:s3cret@my broker", "has a host that is not valid"),
        ("amqps://u:s3cret@broker :5671", "has a host that is not valid"),
        ("amqps://u:s3cret@bro\0ker", "has a host that is not valid"),
        ("amqps://u:s3#cret@h", "is not a URL"),
        ("amqp://u:s3cret@h", "would send the password to h unencrypted"),
    ],
)
def test_a_fault_says_what_is_wrong_and_quotes_no_secret(url: str, fault: str) -> None:
    found = amqp_url_fault(url)
    assert found is not None
    assert found[0] == fault
    with pytest.raises(ValueError, match="expected amqps://") as raised:
        amqp_endpoint(url)
    assert "s3" not in f"{found}{raised.value!r}"


def test_the_password_is_in_no_representation() -> None:
    assert "s3cret" not in repr(amqp_endpoint("amqps://u:s3cret@h"))
