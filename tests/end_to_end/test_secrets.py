"""The function app of this repository in the host, with a target whose connection string is in a key vault."""

import re
from dataclasses import replace
from pathlib import Path

from busway_broker.config import SharedAccessKey
from tests.site import Site, namespaces
from tests.vault import Vault

WEST, EAST = namespaces("{west: {queues: [orders]}, east: {queues: [copies]}}")
KEYS = (SharedAccessKey(name="Root", key="the-key-of-today"),)
TASK = """
task: orders
source: {connection: west, queue: orders}
routes: [{target: {connection: east, queue: copies}}]
"""


def connection_string(site: Site, key: str) -> str:
    where = f"Endpoint=sb://localhost:{site.broker.port('east')};SharedAccessKeyName=Root;SharedAccessKey={key}"
    return f"{where};UseDevelopmentEmulator=true"


def test_the_running_app_uses_a_rotated_secret(tmp_path: Path) -> None:
    east = replace(EAST, shared_access_keys=KEYS)
    secret = "east: {kind: service-bus, secret: east-connection}"
    with (
        Vault(tmp_path / "certificate") as vault,
        Site(
            tmp_path, [WEST, east], TASK, more=secret, settings={"SSL_CERT_FILE": vault.authority, **vault.identity()}
        ) as site,
    ):
        vault.set("east-connection", connection_string(site, "the-key-of-yesterday"))
        with site.running_host(BUSWAY_KEY_VAULT=vault.url) as host:
            site.send("west/orders", "one", "two")
            host.wait_for(lambda: "east/copies: the target refuses to take messages" in host.log())
            assert site.active("east/copies") == 0
            vault.set("east-connection", connection_string(site, "the-key-of-today"))
            host.wait_for(lambda: site.active("east/copies") == 2, 40)
            site.send("west/orders", "three")
            host.wait_for(lambda: site.active("east/copies") == 3)
        log = host.log()
    assert "reconnecting, secret east-connection has a new version" in log
    assert not re.search("the-key-of|SharedAccessKey=", log)
