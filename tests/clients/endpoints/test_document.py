"""The endpoint document, its signature, and what is none."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from busway_clients.endpoints.document import read_document, write_document
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved, Offer
from busway_clients.endpoints.file import DocumentSource
from busway_clients.endpoints.signature import sign
from tests.clients.endpoints.documents import EAST, WEST, document

NOW = datetime(2026, 11, 21, tzinfo=UTC)
DOMAINS = ("servicebus.windows.net",)


def pair(private: Any = None) -> Any:
    private = Ed25519PrivateKey.generate() if private is None else private
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), public


PRIVATE, PUBLIC = pair()


def test_each_role_has_its_site_with_endpoints_in_order() -> None:
    read = read_document(document("west", 7, active={"send": "west", "receive": "east"}), "file", NOW)
    assert read.answer("send", "file").offers == (Offer(Endpoint(WEST), 0), Offer(Endpoint(WEST, 443), 1))
    answer = read.answer("receive", "file")
    assert (answer.site, answer.offers, answer.ttl_seconds, answer.serial) == ("east", (Offer(Endpoint(EAST)),), 30, 7)


def test_written_document_is_read_back_unchanged() -> None:
    read = read_document(document(expires="2026-12-31T00:00:00+01:00"), "file", NOW)
    assert read_document(write_document(read), "file", NOW) == read


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"<!DOCTYPE html><title>Sign in</title>", "perhaps a login page"),
        (b"\xef\xbb\xbf\n<html>", "perhaps a login page"),
        (document()[:-20], "perhaps half-written"),
        (document()[:1], "perhaps half-written"),
        (b"\x00" * 300, "perhaps half-written"),
        (b"\xff\xfe\x00", "perhaps half-written"),
        (b"[" * 60_000, "nesting is too deep|half-written"),
        (b"[1]", "is a list, expected an object"),
        (b"{}", "is empty, expected an object"),
        (b" " * 70_000, "more than 65,536 bytes"),
        (document()[:-1] + b', "serial": 9}', "occurs twice"),
        (document(version=2), "version is 2, expected 1"),
        (document(version=True), "version is True"),
        (document(serial=None), "serial is missing"),
        (document(serial=0), "serial: is 0"),
        (document(serial="1"), "serial: is '1'"),
        (document(serail=1), "unknown key 'serail'"),
        (document(ttl_seconds=0.5), "ttl_seconds: is 0.5"),
        (document(sites={}), "sites: is empty"),
        (document(sites={"west": []}), "sites.west: is empty, expected a list"),
        (document(sites={"west": "a"}), "sites.west: is a str"),
        (document(sites={"west": [{"namespace": "bus.example.org"}]}), "bus.example.org is not a namespace"),
        (document(sites={"west": [{"namespace": "https://a/"}]}), "is not a host name"),
        (document(sites={"west": [{"namespace": f"x@{WEST}"}]}), "is not a host name"),
        (document(sites={"west": [{"namespace": None}]}), "None is not a host name"),
        (document(sites={"west": [{"namespace": WEST, "port": 22}]}), "port is 22, expected 5671 or 443"),
        (document(sites={"west": [{"namespace": WEST, "port": 5671.0}]}), "port is 5671.0, expected 5671 or 443"),
        (document(sites={"west": [{"namespace": WEST, "key": "secret"}]}), "unknown key 'key'"),
        (document("north"), "active.send is 'north', expected one of east, west"),
        (document(active={"send": ["west"]}), "active.send is"),
        (document(active={"receive": "west"}), "active has no 'send', only receive"),
        (document(expires="soon"), "expires is 'soon'"),
        (document(expires="2027-01-01T00:00"), "with its offset"),
        (document(expires="2026-11-21T00:00Z"), "expired at"),
    ],
)
def test_an_invalid_document_is_reported(content: bytes, expected: str) -> None:
    with pytest.raises(EndpointUnresolved, match=expected) as caught:
        read_document(content, "file", NOW).answer("send", "file")
    assert str(caught.value).startswith("file")


@given(
    st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr).map(str.encode)
)
def test_other_json_is_refused(content: bytes) -> None:
    with pytest.raises(EndpointUnresolved):
        read_document(content, "file", NOW)


def read_signed(content: bytes, public_keys: Any) -> Any:
    class Given(DocumentSource):
        def _fetch(self) -> bytes:
            return content

    return Given("file", "send", public_keys=public_keys, domains=DOMAINS, now=NOW.timestamp).read()


def altered(content: bytes, name: str, change: Callable[[Any], object]) -> bytes:
    members = json.loads(content)
    return json.dumps({**members, name: change(members.get(name))}).encode()


def other_spelling(text: str) -> str:
    """Return a Base64 text of the same 64 bytes, with other bits after the last one."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + letters[letters.index(text[-1]) ^ 1]


EXPIRES = "2027-01-01T00:00Z"


def test_a_signed_document_is_read_with_the_key_that_it_names() -> None:
    keys = {"old": pair()[1], "new": PUBLIC}
    assert read_signed(sign(document("east", expires=EXPIRES), PRIVATE, "new"), keys).site == "east"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (document(), "is not signed, expected a signature by new"),
        (sign(document(), PRIVATE, "old"), "is signed by 'old', expected new"),
        (sign(document(), pair()[0], "new"), "the signature by 'new' is wrong"),
        (sign(document("west"), PRIVATE, "new").replace(b'"signature": "', b'"signature": "A'), "is invalid|is wrong"),
        (sign(document(), PRIVATE, "new").replace(b'"protected": "', b'"protected": "!'), "is invalid"),
        (sign(b"[]", PRIVATE, "new"), "is empty"),
        *(
            (altered(sign(document(), PRIVATE, "new"), name, change), "expected base64url")
            for name in ("payload", "protected", "signature")
            for change in (lambda _: "\ud800", lambda text: text + "\n", lambda text: text + "=", lambda _: [1])
        ),
        (altered(sign(document(), PRIVATE, "new"), "signature", other_spelling), "expected base64url"),
        (altered(sign(document(), PRIVATE, "new"), "header", lambda _: {"alg": "none"}), "has 'header' beside"),
    ],
)
def test_invalid_signature_is_reported(content: bytes, expected: str) -> None:
    with pytest.raises(EndpointUnresolved, match=expected):
        read_signed(content, {"new": PUBLIC})


def test_payload_and_algorithm_cannot_be_replaced() -> None:
    honest, other = (sign(document(site), PRIVATE, "new") for site in ("west", "east"))
    lines = dict(zip(("honest", "other"), (content.splitlines() for content in (honest, other)), strict=True))
    swapped = b"\n".join([lines["other"][0], lines["other"][1], *lines["honest"][2:]])
    with pytest.raises(EndpointUnresolved, match="is wrong"):
        read_signed(swapped, {"new": PUBLIC})
    none = b'{"payload": "e30", "protected": "eyJhbGciOiJub25lIiwia2lkIjoibmV3In0", "signature": ""}'
    with pytest.raises(EndpointUnresolved, match="signed with 'none', expected EdDSA"):
        read_signed(none, {"new": PUBLIC})


def test_signed_document_needs_a_key() -> None:
    with pytest.raises(EndpointUnresolved, match="is signed; pass public_keys"):
        read_signed(sign(document(), PRIVATE, "new"), None)


def test_a_key_of_another_kind_is_reported() -> None:
    private, public = pair(generate_private_key(SECP256R1()))
    with pytest.raises(TypeError, match="expected Ed25519"):
        sign(document(), private, "new")
    with pytest.raises(EndpointUnresolved, match="of another kind"):
        read_signed(sign(document(), PRIVATE, "new"), {"new": public})
