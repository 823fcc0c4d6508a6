"""sign, verify and attest: what a signature covers, and what is refused."""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import OctKey, RSAKey

from shared.amqp.codec import encode
from shared.amqp.values import NULL, TRUE, binary, double, int_, long, string, symbol, ubyte, uint
from shared.editors.protection.bound_properties import canonical_form
from shared.editors.protection.jws import SigningKey, verify_detached, verify_statement
from shared.editors.protection.keys import KeyRing, parse_ring
from shared.errors import MessageRejected, TargetRefused
from shared.message.message import Message
from shared.protocols import Withheld
from tests import editing
from tests.editing import edited
from tests.fakes import clock_at_delivery
from tests.keys import jwks, made, settings
from tests.messages import message

ORDER = b'{"id": "4711", "amount": 10.50}'
APP = settings(k=jwks(made("oct")))

# RFC 7515, appendix A.1, and RFC 7797, section 4: the key, and the signature of an unencoded payload.
A1_KEY = {"kty": "oct", "k": "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}
A1_HEADER = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
A1_PAYLOAD = b'{"iss":"joe",\r\n "exp":1300819380,\r\n "http://example.com/is_root":true}'
A1_SIGNATURE = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
UNENCODED = "eyJhbGciOiJIUzI1NiIsImI2NCI6ZmFsc2UsImNyaXQiOlsiYjY0Il19..A5dxf2s96_n5FLueVuW1Z_vh161FwXZC4YLPff6dmDY"


def editor(verb: str, app: dict[str, str], clock: Any = None, **options: Any) -> Any:
    return editing.editor(verb, app, clock, key="k", **options)


def order(body: bytes = ORDER, number: int = 1, **options: Any) -> Message:
    return message(number, body=body, **options)


def signature_of(signed: Any, name: str = "repl-signature") -> Any:
    return signed.application_property(name).payload


def part(text: Any, index: int) -> Any:
    segment = text.split(".")[index]
    return urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


@pytest.mark.parametrize("kind", ["oct", "RSA", "EC", "Ed25519"])
def test_a_signed_message_is_verified_and_an_altered_one_is_rejected(kind: str) -> None:
    app = settings(k=jwks(made(kind)))
    public = app if kind == "oct" else settings(k=jwks(made(kind), private=False))
    signed = edited(editor("sign", app, properties=["sys.MessageId", "Tenant"]), order(named={"tenant": string("t")}))
    verify = editor("verify", public, properties=["tenant", "sys.messageid"])
    assert edited(verify, signed).encode() == signed.encode()
    for change in (
        lambda each: setattr(each, "body", ORDER + b" "),
        lambda each: setattr(each, "message_id", string("other")),
        lambda each: each.set_properties({"tenant": string("T")}),
        lambda each: each.set_properties({"tenant": None}),
    ):
        altered = signed.copy()
        change(altered)
        with pytest.raises(MessageRejected, match="SignatureInvalid: the signature "):
            edited(verify, altered)
    if kind != "oct":
        with pytest.raises(TargetRefused, match="expected a private key"):
            edited(editor("sign", public), order())


@pytest.mark.parametrize("body", [ORDER, b"", b"\x00\xff\xfe", b"url-safe_text~", b"with.dots"])
def test_a_jose_library_verifies_the_signature_of_the_body(body: Any) -> None:
    key = made("EC")
    signed = edited(editor("sign", settings(k=jwks(key))), order(body))
    header, _, signature = signature_of(signed).split(".")
    assert json.loads(part(signature_of(signed), 0)) == {"alg": "ES256", "kid": "k1", "b64": False, "crit": ["b64"]}
    algorithm = jws.JWSRegistry.algorithms["ES256"]
    raw = urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    assert algorithm.verify(f"{header}.".encode() + body, raw, key)


def test_a_detached_signature_by_other_software_is_verified() -> None:
    key = made("oct")
    text = jws.detach_content(jws.serialize_compact({"alg": "HS256", "kid": "k1"}, ORDER, key))
    received = order(named={"signature": string(text)})
    assert edited(editor("verify", settings(k=jwks(key)), signature="signature"), received) is not None


def test_the_examples_of_the_rfcs_are_verified() -> None:
    ring = parse_ring("rfc", json.dumps(A1_KEY))
    payload = urlsafe_b64encode(A1_PAYLOAD).rstrip(b"=").decode()
    assert verify_statement(f"{A1_HEADER}.{payload}.{A1_SIGNATURE}", ring).payload == A1_PAYLOAD
    assert verify_detached(f"{A1_HEADER}..{A1_SIGNATURE}", A1_PAYLOAD, ring)["typ"] == "JWT"
    assert verify_detached(UNENCODED, b"$.02", ring)["b64"] is False
    with pytest.raises(MessageRejected):
        verify_detached(UNENCODED, b"$.03", ring)


def forged(header: dict[str, Any], payload: bytes = ORDER) -> str:
    """Return a detached signature that is genuine except for its header."""
    segment = urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=")
    algorithm = jws.JWSRegistry.algorithms["HS256"]
    signature = urlsafe_b64encode(algorithm.sign(segment + b"." + payload, made("oct"))).rstrip(b"=")
    return f"{segment.decode()}..{signature.decode()}"


GENUINE = {"alg": "HS256", "kid": "k1", "b64": False, "crit": ["b64"]}


def test_an_unmodified_forgery_is_valid() -> None:
    """Without this, the next test would prove nothing."""
    verify = editor("verify", APP)
    assert edited(verify, order(named={"repl-signature": string(forged(GENUINE))}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "SignatureMissing"),
        (int_(5), "SignatureMissing"),
        ("", "SignatureInvalid"),
        ("a.b", "SignatureInvalid"),
        ("....", "SignatureInvalid"),
        ("eyJhbGciOiJub25lIn0..", "UnknownKey"),
        (forged({**GENUINE, "alg": "none"}), "SignatureInvalid"),
        (forged({**GENUINE, "alg": "HS512"}), "SignatureInvalid"),
        (forged({**GENUINE, "alg": "ES256"}), "SignatureInvalid"),
        (forged({**GENUINE, "alg": 5}), "SignatureInvalid"),
        (forged({**GENUINE, "alg": ["HS256"]}), "SignatureInvalid"),
        (forged({**GENUINE, "kid": "k9"}), "UnknownKey"),
        (forged({**GENUINE, "kid": {"a": 1}}), "UnknownKey"),
        (forged({**GENUINE, "crit": ["b64", "x"], "x": 1}), "SignatureInvalid"),
        (forged({name: GENUINE[name] for name in ("alg", "kid", "b64")}), "SignatureInvalid"),
        (forged({**GENUINE, "b64": "no"}), "SignatureInvalid"),
        (forged({**GENUINE, "exp": "later"}), "SignatureInvalid"),
        (forged({**GENUINE, "exp": True}), "SignatureInvalid"),
        (forged({**GENUINE, "exp": 1}), "SignatureExpired"),
        (forged({**GENUINE, "bound": ["tenant"]}), "SignatureInvalid"),
        (forged({**GENUINE, "bound": [5], "bound_digest": "x"}), "SignatureInvalid"),
        (forged({**GENUINE, "bound": ["\ud800"], "bound_digest": "x"}), "SignatureInvalid"),
        (forged(GENUINE).replace("..", ".QQ."), "SignatureInvalid"),
        (forged(GENUINE) + "=", "SignatureInvalid"),
        (forged(GENUINE) + "\u00e9", "SignatureInvalid"),
        ("A" * 40_000 + "..A", "SignatureInvalid"),
    ],
)  # fmt: skip
def test_an_invalid_signature_is_rejected(text: Any, reason: str) -> None:
    value = string(text) if isinstance(text, str) else text
    received = order(named={} if value is None else {"repl-signature": value})
    app = settings(k=jwks(made("oct"), made("EC", "k2")))
    with pytest.raises(MessageRejected) as raised:
        edited(editor("verify", app), received)
    assert raised.value.reason == reason
    assert "4711" not in str(raised.value)
    (dropped,) = editing.answers(editor("verify", app, on_failure="drop"), received)
    assert isinstance(dropped, Withheld)
    assert dropped.reason.startswith(f"{reason}: ")


def test_a_public_key_is_not_accepted_as_an_hmac_secret() -> None:
    """RFC 8725, 2.1: a verifier that trusts the header uses an RSA public key as an HMAC secret."""
    app = settings(k=jwks(made("RSA")))
    header = urlsafe_b64encode(json.dumps(GENUINE).encode()).rstrip(b"=")
    key = made("RSA")
    assert isinstance(key, RSAKey)
    pem = key.as_pem(private=False)
    signature = jws.JWSRegistry.algorithms["HS256"].sign(header + b"." + ORDER, OctKey(pem, pem))
    text = f"{header.decode()}..{urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    with pytest.raises(MessageRejected, match="names an algorithm that key k1 is not for"):
        edited(editor("verify", app), order(named={"repl-signature": string(text)}))


def test_a_signature_expires_after_its_lifetime() -> None:
    app, clock = settings(k=jwks(made("oct"))), clock_at_delivery()
    signed = edited(editor("sign", app, clock, lifetime="PT1H"), order())
    verify = editor("verify", app, clock)
    clock.advance(timedelta(minutes=59).total_seconds())
    assert edited(verify, signed)
    clock.advance(60)
    with pytest.raises(MessageRejected, match="SignatureExpired: the signature has expired"):
        edited(verify, signed)


def test_a_signature_that_covers_too_little_is_rejected_and_a_valid_one_removed_if_configured() -> None:
    signed = edited(editor("sign", APP, into="signed"), order())
    assert edited(editor("verify", APP, signature="signed", remove=True), signed).encode() == order().encode()
    with pytest.raises(MessageRejected, match=r"NotSigned: the signature does not cover sys\.MessageId"):
        edited(editor("verify", APP, signature="signed", properties=["sys.MessageId"]), signed)


def test_canonical_form_depends_on_values_and_not_on_encodings() -> None:
    named = {
        "a": NULL, "B": TRUE, "c": int_(5), "d": long(-5), "e": ubyte(7), "f": double(0.5), "g": binary(b"\xff"),
        "h": symbol("s"), 'q"\n': string("é\u2028"),
    }  # fmt: skip
    names = sorted(["sys.MessageId", "sys.CorrelationId", "absent", *named])
    assert canonical_form(names, order(named=named)).decode() == (
        '[["B","boolean","true"],["a","null",null],["absent","null",null],["c","integer","5"],["d","integer","-5"],'
        '["e","integer","7"],["f","double","3fe0000000000000"],["g","binary","_w"],["h","string","s"],'
        '["q\\"\\n","string","é\u2028"],["sys.CorrelationId","null",null],["sys.MessageId","string","m-1"]]'
    )
    widened = {**named, "c": long(5), "e": uint(7), "h": string("s")}
    assert canonical_form(names, order(named=widened)) == canonical_form(names, order(named=named))


@pytest.mark.parametrize("kind", ["oct", "EC"])
def test_an_attestation_names_the_place_time_and_content_of_the_received_message(kind: str) -> None:
    key, clock = made(kind), clock_at_delivery()
    clock.advance(1.5)
    received = order(named={"tenant": string("t"), "repl-path": string("north")}, subject=string("new"))
    attested = edited(editor("attest", settings(k=jwks(key)), clock), received)
    opened = jws.deserialize_compact(signature_of(attested, "repl-attestation"), key)
    claims = json.loads(opened.payload)
    names = ["sys.MessageId", "sys.Subject", "tenant"]
    assert claims == {
        "site": "west",
        "entity": "orders",
        "task": "copy",
        "enqueued_time": "2030-03-17T17:46:40.123Z",
        "received": "2030-03-17T17:46:41.623Z",
        "sequence_number": 1,
        "message_id": "m-1",
        "body": urlsafe_b64encode(hashlib.sha256(ORDER).digest()).rstrip(b"=").decode(),
        "properties": names,
        "properties_digest": urlsafe_b64encode(hashlib.sha256(canonical_form(names, received)).digest())
        .rstrip(b"=")
        .decode(),
    }
    again = edited(editor("attest", settings(k=jwks(key)), clock), attested)
    first, second = signature_of(again, "repl-attestation").split(";")
    assert first == signature_of(attested, "repl-attestation")
    assert json.loads(jws.deserialize_compact(second, key).payload)["properties_digest"] == claims["properties_digest"]
    with pytest.raises(MessageRejected, match="repl-attestation is a int, expected a string"):
        edited(editor("attest", settings(k=jwks(key))), order(named={"repl-attestation": int_(1)}))


def test_a_body_that_is_a_sequence_has_no_bytes_to_sign() -> None:
    received = order()
    received.sections.body = b"\x00\x53\x76" + encode(NULL)[:0] + b"\x45"
    with pytest.raises(MessageRejected, match="UnreadableBody"):
        edited(editor("sign", APP), received)


@pytest.mark.parametrize(
    "key", [made("X25519"), made("oct", use="enc"), made("EC", alg="ES384"), made("oct", alg="A256KW")]
)
def test_a_key_that_cannot_sign_is_an_error_for_the_operator(key: Any) -> None:
    with pytest.raises(TargetRefused, match="secret k: key k1 is not for signing"):
        SigningKey(KeyRing("k", [key]), None)
