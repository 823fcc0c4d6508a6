"""The certificate for TLS, and the authority that clients trust."""

import concurrent.futures
import contextlib
import http.client
import ssl
import stat
from pathlib import Path

import pytest

from busway_broker.admin.certificate import AUTHORITY_FILE, SERVER_FILE, server_context
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.errors import ConfigError

CONFIG = NamespaceConfig(name="west", queues=(QueueConfig(name="orders"),))


def test_a_certificate_is_created_once_with_a_private_mode(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "tls"
    server_context(folder)
    made = (folder / SERVER_FILE).read_bytes()
    assert stat.S_IMODE((folder / SERVER_FILE).stat().st_mode) == 0o600
    assert b"PRIVATE" not in (folder / AUTHORITY_FILE).read_bytes()
    server_context(folder)
    assert (folder / SERVER_FILE).read_bytes() == made
    assert sorted(path.name for path in folder.iterdir()) == [AUTHORITY_FILE, SERVER_FILE]


def test_brokers_that_start_together_have_one_certificate(tmp_path: Path) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        contexts = [*pool.map(lambda _: server_context(tmp_path / "tls"), range(8))]
    authority = ssl.create_default_context(cafile=tmp_path / "tls" / AUTHORITY_FILE)
    for context in contexts:
        shake_hands(context, authority)


def test_a_certificate_of_another_authority_is_replaced(tmp_path: Path) -> None:
    for name in ("one", "two"):
        server_context(tmp_path / name)
    (tmp_path / "two" / AUTHORITY_FILE).replace(tmp_path / "one" / AUTHORITY_FILE)
    context = server_context(tmp_path / "one")
    shake_hands(context, ssl.create_default_context(cafile=tmp_path / "one" / AUTHORITY_FILE))


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Connect a client to a server in memory; an SSLError if it does not trust the certificate."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    assert sides[0].version()
    assert sides[0].getpeercert()


def test_an_unusable_certificate_folder_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="no usable certificate"):
        server_context(tmp_path / "file" / "tls")
    (tmp_path / SERVER_FILE).write_text("nonsense")
    with pytest.raises(ConfigError, match="no usable certificate"):
        server_context(tmp_path)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_certificate_is_valid_for_this_machine(tmp_path: Path, host: str) -> None:
    with RunningBroker([CONFIG]) as broker, RunningAdmin(broker, tmp_path) as admin:
        port = int(admin.address("west").rpartition(":")[2])
        # The default context of Python checks strictly.
        context = ssl.create_default_context(cafile=admin.authority)
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=5)
        connection.request("GET", "/orders")
        assert connection.getresponse().status == 200
        connection.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            http.client.HTTPSConnection(host, port, context=ssl.create_default_context(), timeout=5).connect()
