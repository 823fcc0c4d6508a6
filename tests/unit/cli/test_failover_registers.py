"""Where it is said which site is in use: zone file, endpoint document, Azure DNS over HTTP."""

import json
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.mgmt.dns import DnsManagementClient
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from busway_clients.endpoints.dns import DnsSource
from busway_clients.endpoints.file import FileSource
from busway_clients.endpoints.signature import public_key_of, sign
from cli.failover.azure_dns import AzureDns
from cli.failover.endpoint_file import EndpointFile
from cli.failover.register import FailoverRefused
from cli.failover.zone_file import ZoneFile
from shared.clock import ManualClock
from tests.clients.endpoints.documents import document
from tests.clients.endpoints.name_server import NameServer
from tests.clients.endpoints.zones import ZONE

NOW = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
ROLES = ("send", "receive")

ALIASES = {"send": "bus-send.example.test", "receive": "bus-receive.example.test"}
NAMES = {"west": "west.example.test", "east": "east.example.test"}
PREFIX = "_azure_servicebus._amqp"


def zone_file(tmp_path: Path, text: Any = ZONE, aliases: Any = ALIASES, names: Any = NAMES) -> Any:
    path = tmp_path / "example.test.zone"
    path.write_text(text)
    return ZoneFile(path, "example.test", aliases, names, PREFIX), path


def both(site: str) -> Any:
    return dict.fromkeys(ROLES, site)


def test_a_zone_is_switched_and_clients_of_the_name_server_follow(tmp_path: Path) -> None:
    register, path = zone_file(tmp_path)
    path.chmod(0o640)
    state = register.read()
    assert (state.active, state.ttl_seconds, state.version) == (both("west"), 30, "2026112101")
    assert register.changes(both("east"), state) == [
        "bus-send.example.test. CNAME west.example.test. -> east.example.test.",
        "bus-receive.example.test. CNAME west.example.test. -> east.example.test.",
        "example.test. SOA serial 2026112101 -> 2026112102",
    ]
    after = register.write(both("east"), state)
    assert (after.active, after.ttl_seconds, after.version) == (both("east"), 30, "2026112102")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [path.name for path in tmp_path.iterdir()] == [path.name]
    records = [line for line in path.read_text().splitlines() if not line.startswith("$")]
    assert "SOA" in records[0]
    assert records[0].endswith("; kept")
    (publishers,) = [line for line in records if line.startswith("bus-send ")]
    assert "CNAME east" in publishers
    assert publishers.endswith("; publishers")
    assert path.read_text().count(";") == ZONE.count(";")
    with NameServer() as server:
        for text, site in ((ZONE, "west"), (path.read_text(), "east")):
            server.load(text)
            answer = DnsSource(ALIASES["receive"], nameservers=["127.0.0.1"], port=server.port).read()
            assert (answer.site, answer.ttl_seconds) == (f"{site}.example.test", 20)
            assert answer.offers[0].endpoint.namespace == f"{site}-example.servicebus.windows.net"


def test_one_role_is_moved_and_a_repeated_switch_changes_nothing(tmp_path: Path) -> None:
    register, path = zone_file(tmp_path, ZONE.replace("2026112101", "4294967295"))
    after = register.write({"send": "east"}, register.read())
    assert (after.active, after.version) == ({"send": "east", "receive": "west"}, "1"), "a serial wraps around"
    before = path.read_bytes()
    assert register.changes({"send": "east"}, after) == []
    assert register.write({"send": "east"}, after) == after
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("bus-send 30 CNAME west ; publishers", "", "bus-send.example.test. has no CNAME record"),
        ("CNAME west ; publishers", "CNAME north", "bus-send.example.test. points to north.example.test., expected"),
        ("_azure_servicebus._amqp.east SRV", "other SRV", "SRV record _azure_servicebus._amqp.east.example"),
        ("ns A 127.0.0.1", "ns A 300.0.0.1", "cannot be parsed as zone example.test."),
        ("ns A 127.0.0.1", "$INCLUDE other.zone", "cannot be parsed as zone example.test."),
        ("ns A 127.0.0.1", "$GENERATE 1-9 n$ A 127.0.0.$", "cannot be parsed as zone example.test."),
        ("@ IN SOA", "; @ IN SOA", "cannot be parsed as zone example.test."),
        ("ns A 127.0.0.1", "bus-send A 127.0.0.1", "cannot be parsed as zone example.test."),
        ("ns A 127.0.0.1", "<html>", "cannot be parsed as zone example.test."),
    ],
)
def test_an_invalid_zone_is_not_changed(before: str, after: str, expected: str, tmp_path: Path) -> None:
    assert before in ZONE
    register, path = zone_file(tmp_path, ZONE.replace(before, after))
    content = path.read_bytes()
    with pytest.raises(FailoverRefused) as caught:
        register.write(both("east"), register.read())
    assert expected in str(caught.value)
    assert path.read_bytes() == content


def test_roles_with_one_alias_move_together(tmp_path: Path) -> None:
    register, _ = zone_file(tmp_path, aliases=dict.fromkeys(ROLES, "bus-send.example.test"))
    with pytest.raises(FailoverRefused, match="they can only be moved together"):
        register.write({"send": "east"}, register.read())
    assert register.write(both("east"), register.read()).active == both("east")


def test_only_one_of_several_concurrent_switches_succeeds(tmp_path: Path) -> None:
    for name, register in (("zone", zone_file(tmp_path)[0]), ("document", endpoint_file(tmp_path)[0])):
        state = register.read()

        def switch(_: Any, register: Any = register, state: Any = state) -> Any:
            try:
                return register.write(both("east"), state).version
            except FailoverRefused as error:
                return str(error)

        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(switch, range(4)))
        assert sum("someone else has changed it" in result for result in results) == 3, name


def test_a_file_keeps_its_owner_and_a_link_stays_a_link(tmp_path: Path) -> None:
    register, path = zone_file(tmp_path)
    kept = tmp_path / "share" / path.name
    kept.parent.mkdir()
    kept.write_bytes(path.read_bytes())
    kept.chmod(0o640)
    owner, group = (53, 54) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(kept, owner, group)
    path.unlink()
    path.symlink_to(kept)
    register.write(both("east"), register.read())
    assert path.is_symlink()
    found = kept.stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, owner, group)
    assert register.read().active == both("east")
    assert [each.name for each in kept.parent.iterdir()] == [path.name]
    kept.unlink()
    with pytest.raises(FailoverRefused, match="cannot be read, No such file"):
        register.read()


# The endpoint document


def endpoint_file(tmp_path: Path, content: Any = None, **options: Any) -> Any:
    path = tmp_path / "endpoints.json"
    path.write_bytes(document("west", 7) if content is None else content)
    return EndpointFile(path, ROLES, ManualClock(NOW), **options), path


def test_a_document_is_switched_and_its_readers_follow(tmp_path: Path) -> None:
    register, path = endpoint_file(tmp_path, document("west", 7, active={**both("west"), "audit": "west"}))
    state = register.read()
    assert (state.active, state.ttl_seconds, state.version) == (both("west"), 30, "7")
    assert register.changes({"send": "east"}, state) == ["active.send: west -> east", "serial: 7 -> 8"]
    after = register.write({"send": "east"}, state)
    assert (after.active, after.version) == ({"send": "east", "receive": "west"}, "8")
    assert [FileSource(path, role).read().site for role in ("send", "receive", "audit")] == ["east", "west", "west"]
    assert [path.name for path in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (document("west", 7)[:50], "half-written"),
        (b"<html>", "login page"),
        (document(active={"send": "west"}), "active has no 'receive'"),
        (document(expires="2026-11-21T02:00Z"), "expired at"),
        (document("west", 7), "has no endpoints of north, got west, east"),
    ],
)
def test_an_invalid_document_is_not_changed(content: bytes, text: str, tmp_path: Path) -> None:
    register, path = endpoint_file(tmp_path, content)
    with pytest.raises(FailoverRefused, match=text):
        register.write(both("north"), register.read())
    assert path.read_bytes() == content


def private_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_a_signed_document_is_verified_and_signed_again(tmp_path: Path) -> None:
    private, other = private_key(), private_key()
    content = sign(document("west", 7), private, "2026")
    register, path = endpoint_file(tmp_path, content, private_key=private, key="2026")
    register.write(both("east"), register.read())
    keys = {"2026": public_key_of(private)}
    assert FileSource(path, "send", public_keys=keys, serials=tmp_path / "serials.sqlite").read().site == "east"
    for held, options in (
        (content, {}),
        (content, {"private_key": other, "key": "2026"}),
        (document(), {"private_key": private, "key": "2026"}),
    ):
        register, _ = endpoint_file(tmp_path, held, **options)
        with pytest.raises(FailoverRefused, match=r"is signed, expected key_setting|is wrong|is not signed"):
            register.read()


def test_switch_lets_a_document_expire_later_and_renews_an_expired_one(tmp_path: Path) -> None:
    validity = timedelta(days=30)
    register, path = endpoint_file(tmp_path, document("west", 7, expires="2026-11-21T02:00Z"), validity=validity)
    state = register.read()
    assert register.changes(both("east"), state) == [
        "active.send: west -> east",
        "active.receive: west -> east",
        "expires: 2026-11-21T02:00Z -> 2026-12-21T03:00Z",
        "serial: 7 -> 8",
    ]
    after = register.write(both("east"), state)
    assert json.loads(path.read_bytes())["expires"] == "2026-12-21T03:00:00Z"
    assert FileSource(path, "send", now=(NOW + timedelta(days=29)).timestamp).read().site == "east"
    # Half of it must have passed before a switch to the active site renews it.
    assert register.changes(both("east"), after) == []
    later = EndpointFile(path, ROLES, ManualClock(NOW + timedelta(days=16)), validity=validity)
    lines = ["expires: 2026-12-21T03:00Z -> 2027-01-06T03:00Z", "serial: 8 -> 9"]
    assert later.changes(both("east"), after) == lines
    assert later.write(both("east"), after).version == "9"
    later.write({"send": "west"}, later.read())
    assert json.loads(path.read_bytes())["expires"] == "2027-01-06T03:00:00Z"


def test_a_signed_document_that_has_expired_is_signed_again_only_with_its_serial(tmp_path: Path) -> None:
    private = private_key()
    old = sign(document("west", 7, expires="2026-11-21T02:00Z"), private, "2026")
    options = {"private_key": private, "key": "2026", "validity": timedelta(days=30)}
    for serial in (None, 6, 8):
        register, path = endpoint_file(tmp_path, old, renewed_serial=serial, **options)
        with pytest.raises(FailoverRefused, match="an old copy looks the same; if 7 is its last serial"):
            register.write(both("east"), register.read())
        assert path.read_bytes() == old
    register, path = endpoint_file(tmp_path, old, renewed_serial=7, **options)
    after = register.write(both("east"), register.read())
    assert (after.active, after.version) == (both("east"), "8")


# Azure DNS


class ResourceManager:
    """As much of Azure Resource Manager as record sets need, after the documented REST API."""

    def __init__(self) -> None:
        self.records = {
            ("CNAME", "bus-send"): self.record({"CNAMERecord": {"cname": "west.example.test"}, "TTL": 60}, "a"),
            ("CNAME", "bus-receive"): self.record({"CNAMERecord": {"cname": "west.example.test."}, "TTL": 30}, "b"),
            ("SRV", f"{PREFIX}.east"): self.record({"SRVRecords": []}, "c"),
            ("SRV", f"{PREFIX}.west"): self.record({"SRVRecords": []}, "d"),
        }
        self.requests: list[Any] = []
        self.meanwhile = None
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(*manager.get(self.path))

            def do_PUT(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.reply(*manager.put(self.path, body, self.headers.get("If-Match")))

            def reply(self, status: Any, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def record(self, properties: Any, etag: Any) -> dict[Any, Any]:
        return {"id": "/x", "name": "x", "type": "Microsoft.Network/dnsZones/x", "etag": etag, "properties": properties}

    def key(self, path: Any) -> Any:
        path, _, query = path.partition("?")
        base = "/subscriptions/sub/resourceGroups/group/providers/Microsoft.Network/dnsZones/example.test/"
        assert path.startswith(base)
        assert query == "api-version=2018-05-01"
        kind, name = path.removeprefix(base).split("/")
        return kind, name

    def get(self, path: Any) -> Any:
        key = self.key(path)
        found = self.records.get(key)
        return (200, found) if found else (404, {"error": {"code": "NotFound", "message": "no such record"}})

    def put(self, path: Any, body: Any, etag: Any) -> Any:
        key = self.key(path)
        if self.meanwhile is not None:
            self.meanwhile()
        if etag != self.records[key]["etag"]:
            return 412, {"error": {"code": "PreconditionFailed", "message": "changed"}}
        self.requests.append((*key, body, etag))
        self.records[key] = self.record(body["properties"], f"{etag}+")
        return 200, self.records[key]


@pytest.fixture
def manager() -> Iterator[Any]:
    running = ResourceManager()
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.server.shutdown()
    running.server.server_close()
    thread.join()


def azure_dns(manager: Any, clock: Any = None) -> AzureDns:
    client = DnsManagementClient(
        cast("Any", object()),
        "sub",
        f"http://127.0.0.1:{manager.server.server_port}",
        authentication_policy=SansIOHTTPPolicy(),
        retry_total=0,
    )
    clock = ManualClock(NOW) if clock is None else clock
    return AzureDns(
        client, resource_group="group", zone="example.test.", aliases=ALIASES, names=NAMES, prefix=PREFIX, clock=clock
    )


def test_azure_record_sets_are_replaced_with_their_etags(manager: Any) -> None:
    clock = ManualClock(NOW)
    register = azure_dns(manager, clock)
    state = register.read()
    assert (state.active, state.ttl_seconds, state.changed) == (both("west"), 60, None)
    assert register.changes(both("east"), state) == [
        "bus-send.example.test CNAME west.example.test -> east.example.test",
        "bus-receive.example.test CNAME west.example.test -> east.example.test",
    ]
    clock.advance(60)
    after = register.write(both("east"), state)
    assert (after.active, after.changed) == (both("east"), NOW + timedelta(seconds=60))
    properties = {
        "metadata": {"busway-changed": "2026-11-21T03:01:00+00:00"},
        "CNAMERecord": {"cname": "east.example.test"},
    }
    assert manager.requests == [
        ("CNAME", "bus-send", {"properties": {**properties, "TTL": 60}}, "a"),
        ("CNAME", "bus-receive", {"properties": {**properties, "TTL": 30}}, "b"),
    ]
    assert register.write(both("east"), after) == after
    assert len(manager.requests) == 2


def test_concurrent_changes_in_azure_are_not_overwritten(manager: Any) -> None:
    register = azure_dns(manager)
    state = register.read()
    manager.records["CNAME", "bus-send"]["etag"] = "z"
    with pytest.raises(FailoverRefused, match="someone else has changed it"):
        register.write(both("east"), state)
    state = register.read()
    manager.meanwhile = lambda: manager.records["CNAME", "bus-send"].update(etag="y")
    with pytest.raises(FailoverRefused, match=r"bus-send.example.test was not changed, \w+ \(412\)$"):
        register.write(both("east"), state)
    assert manager.requests == []
    state = register.read()
    manager.meanwhile = lambda: manager.records["CNAME", "bus-receive"].update(etag="x")
    text = r"bus-receive.example.test was not changed, \w+ \(412\); bus-send.example.test was changed$"
    with pytest.raises(FailoverRefused, match=text):
        register.write(both("east"), state)


def test_the_time_of_a_manual_change_in_azure_is_unknown(manager: Any) -> None:
    register = azure_dns(manager)
    assert register.write({"receive": "east"}, register.read()).changed is None
    assert register.write({"send": "east"}, register.read()).changed == NOW


def test_missing_azure_records_and_unknown_sites_are_reported(manager: Any) -> None:
    register = azure_dns(manager)
    state = register.read()
    del manager.records["SRV", f"{PREFIX}.east"]
    with pytest.raises(FailoverRefused, match=r"SRV record _azure_servicebus._amqp.east.example.test"):
        register.changes(both("east"), state)
    manager.records["CNAME", "bus-send"]["properties"]["CNAMERecord"]["cname"] = "north.example.test"
    with pytest.raises(FailoverRefused, match=r"points to north.example.test, expected one of west"):
        register.read()
    del manager.records["CNAME", "bus-send"]
    with pytest.raises(FailoverRefused, match=r"bus-send.example.test CNAME cannot be read, ResourceNotFoundError"):
        register.read()
