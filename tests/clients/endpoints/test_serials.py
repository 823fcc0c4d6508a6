"""The highest serial of an endpoint document over restarts: each read is that of a new source."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from busway_clients.endpoints.endpoint import EndpointUnresolved
from busway_clients.endpoints.file import FileSource, SerialFile
from busway_clients.endpoints.signature import public_key_of, sign
from busway_clients.endpoints.url import UrlSource
from tests.clients.endpoints.documents import document

PRIVATE = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
KEYS = {"2026": public_key_of(PRIVATE)}


def signed(site: str, serial: int, **changes: Any) -> bytes:
    return sign(document(site, serial, **changes), PRIVATE, "2026")


def read(path: Path, serials: Path | None) -> str:
    """Return what an application reads that has just started."""
    try:
        return FileSource(path, "send", public_keys=KEYS, serials=serials).read().site
    except EndpointUnresolved as error:
        return str(error)


def test_old_signed_document_is_refused_after_a_restart(tmp_path: Path) -> None:
    path, serials = tmp_path / "endpoints.json", tmp_path / "serials.sqlite"
    old_copy = f"{path}: an old copy: has serial 1, but 2 was read before ({serials})"
    for site, serial, expected in (
        ("west", 1, "west"),
        ("east", 2, "east"),
        ("west", 1, old_copy),
        ("west", 3, "west"),
    ):
        path.write_bytes(signed(site, serial))
        assert read(path, serials) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "is signed without expires"),
        ({"expires": "2099-01-01T00:00Z"}, "west"),
        ({"expires": "2026-01-01T00:00Z"}, "expired at 2026-01-01"),
    ],
)
def test_signed_document_without_expires_needs_the_serial_file(changes: Any, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_bytes(signed("west", 1, **changes))
    assert expected in read(path, None)


def test_unsigned_document_may_keep_its_serial_too(tmp_path: Path) -> None:
    path, serials = tmp_path / "endpoints.json", tmp_path / "serials.sqlite"
    for serial in (2, 1):
        path.write_bytes(document("west", serial))
        source = FileSource(path, "send", serials=serials)
        if serial == 2:
            assert source.read().serial == 2
        else:
            with pytest.raises(EndpointUnresolved, match="an old copy"):
                source.read()


def test_serials_of_several_documents_and_roles_share_a_file(tmp_path: Path) -> None:
    serials = tmp_path / "serials.sqlite"
    for name, serial in (("one", 5), ("two", 3)):
        path = tmp_path / name
        path.write_bytes(signed("west", serial))
        for role in ("send", "receive"):
            assert FileSource(path, role, public_keys=KEYS, serials=serials).read().serial == serial


def test_relative_and_absolute_paths_are_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, serials = tmp_path / "endpoints.json", tmp_path / "serials.sqlite"
    path.write_bytes(document("west", 2))
    FileSource(path, "send", serials=serials).read()
    path.write_bytes(document("west", 1))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EndpointUnresolved, match="an old copy"):
        FileSource("endpoints.json", "send", serials=serials).read()


def test_highest_serial_of_concurrent_writers_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "serials.sqlite"

    def accept(serial: int) -> bool:
        try:
            SerialFile(path).accept("document", serial)
        except EndpointUnresolved as error:
            return "an old copy" not in str(error)
        return True

    with ThreadPoolExecutor(4) as threads:
        accepted = list(threads.map(accept, range(1, 21)))
    assert accepted[-1]
    with pytest.raises(EndpointUnresolved, match="has serial 19, but 20 was read before"):
        SerialFile(path).accept("document", 19)


def test_serial_file_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.json"
    path.write_bytes(signed("west", 1))
    damaged = tmp_path / "serials.sqlite"
    damaged.write_bytes(b"no database" * 100)
    for serials in (damaged, tmp_path / "missing" / "serials.sqlite"):
        with pytest.raises(EndpointUnresolved, match=r"the serials of endpoint documents cannot be used: .*sqlite"):
            FileSource(path, "send", public_keys=KEYS, serials=serials).read()


def test_url_source_takes_the_same_options(tmp_path: Path) -> None:
    UrlSource("http://127.0.0.1:1/e", "send", public_keys=KEYS, serials=tmp_path / "serials.sqlite")
