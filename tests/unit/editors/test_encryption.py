"""encrypt, decrypt and re-encrypt: what they keep, what they refuse, and that they follow the standard."""

import json
import zlib
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from joserfc import jwe
from joserfc.jwk import OctKey

from shared.amqp.codec import encode
from shared.amqp.values import list_, long, string
from shared.errors import MessageRejected
from tests.editing import edited, editor
from tests.keys import jwks, made, settings
from tests.unit.editors.encrypting import ORDER, order

APP = settings(k=jwks(made("oct")))


@pytest.mark.parametrize("kind", ["oct", "RSA", "EC", "X25519"])
@pytest.mark.parametrize("options", [{}, {"bind": ["sys.MessageId", "tenant"]}, {"serialization": "json"}])
def test_decrypt_restores_the_body_byte_by_byte(kind: str, options: dict[str, Any]) -> None:
    app = settings(k=jwks(made(kind)))
    sent = order()
    sealed = edited(editor("encrypt", app, key="k", **options), sent)
    assert b"4711" not in sealed.body
    assert sealed.content_type == ("application/jose+json" if "serialization" in options else "application/jose")
    assert sealed.message_id == sent.message_id
    assert sealed.arrival == sent.arrival
    assert edited(editor("decrypt", app, key="k"), sealed).encode() == sent.encode()


def test_a_task_can_encrypt_directly_with_its_key() -> None:
    sealed = edited(editor("encrypt", APP, key="k", alg="dir", enc="A256GCM"), order())
    assert sealed.body.split(b".")[1] == b"", "there is no wrapped key"
    assert edited(editor("decrypt", APP, key="k"), sealed).body == ORDER


def test_a_jose_library_and_busway_decrypt_each_others_bodies() -> None:
    key = made("oct")
    sealed = edited(editor("encrypt", settings(k=jwks(key)), key="k"), order())
    opened = jwe.decrypt_compact(sealed.body, key, registry=jwe.JWERegistry(strict_check_header=True))
    assert opened.plaintext == ORDER
    assert opened.protected == {"alg": "A256KW", "enc": "A256GCM", "kid": "k1", "cty": "application/json"}
    foreign = jwe.encrypt_compact({"alg": "A256KW", "enc": "A256CBC-HS512"}, ORDER, key)
    decrypted = edited(editor("decrypt", settings(k=jwks(key)), key="k"), order(foreign.encode()))
    assert decrypted.body == ORDER
    assert decrypted.content_type is None, "the sender says nothing of it"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xa0\x01b",
        b"\x00\x53\x77" + encode(string("text")),
        b"\x00\x53\x76" + encode(list_([long(1)])),
        b"\x00\x53\x75\xa0\x00",
    ],
    ids=["none", "two sections", "value", "sequence", "empty"],
)
def test_every_kind_of_body_is_restored(body: Any) -> None:
    sent = order()
    sent.sections.body = body
    if not body:
        with pytest.raises(MessageRejected, match="NoBody"):
            edited(editor("encrypt", APP, key="k"), sent)
        return
    sealed = edited(editor("encrypt", APP, key="k"), sent)
    assert edited(editor("decrypt", APP, key="k"), sealed).encode() == sent.encode()


FIELDS = ["$.card.number", "$.lines[*].n", "$.amount"]


def test_each_field_is_encrypted_by_itself_and_the_rest_keeps_every_byte() -> None:
    sealed = edited(editor("encrypt", APP, key="k", fields=FIELDS), order())
    assert sealed.content_type == "application/json"
    document = json.loads(sealed.body)
    assert document["id"] == "4711"
    for hidden in (document["card"]["number"], document["lines"][0]["n"], document["amount"]):
        assert hidden.count(".") == 4
    assert b"4000" not in sealed.body
    assert b'"card": {"number":"ey' in sealed.body, "blanks are where they were"
    assert edited(editor("decrypt", APP, key="k", fields=FIELDS), sealed).body == ORDER
    text = order()
    text.sections.body = b"\x00\x53\x77" + encode(string(ORDER.decode()))
    sealed = edited(editor("encrypt", APP, key="k", fields=FIELDS), text)
    assert sealed.sections.body.startswith(b"\x00\x53\x77"), "a string stays one"
    assert edited(editor("decrypt", APP, key="k", fields=FIELDS), sealed).sections.body == text.sections.body


def test_a_missing_field_rejects_the_message_unless_the_options_allow_it() -> None:
    for paths in (["$.card.cvc"], ["$.lines[2].n"], ["$.id.deeper"], ["$.card[0]"]):
        with pytest.raises(MessageRejected, match=r"FieldMissing: the body has nothing at \$"):
            edited(editor("encrypt", APP, key="k", fields=paths), order())
        sealed = edited(editor("encrypt", APP, key="k", fields=paths, missing_fields="pass"), order())
        assert sealed.body == ORDER
    assert (
        edited(editor("encrypt", APP, key="k", fields=["$.lines[*]"]), order(b'{"lines": []}')).body == b'{"lines": []}'
    )


def test_a_body_that_is_bound_to_a_message_is_rejected_in_another() -> None:
    bound = {"bind": ["sys.MessageId", "tenant"]}
    sealed = edited(editor("encrypt", APP, key="k", **bound), order(named={"Tenant": string("t")}))
    other = order(number=2, body=sealed.body, named={"Tenant": string("t")})
    with pytest.raises(MessageRejected, match="BoundElsewhere"):
        edited(editor("decrypt", APP, key="k"), other)
    sealed.set_properties({"Tenant": string("u")})
    with pytest.raises(MessageRejected, match="BoundElsewhere"):
        edited(editor("decrypt", APP, key="k"), sealed)
    loose = edited(editor("encrypt", APP, key="k"), order())
    with pytest.raises(MessageRejected, match=r"NotBound: the content is not bound to sys.MessageId"):
        edited(editor("decrypt", APP, key="k", bind=["sys.messageid"]), loose)


def test_an_encrypted_field_is_not_accepted_as_a_body_nor_a_body_as_a_field() -> None:
    for bind in ({}, {"bind": ["sys.MessageId"]}):
        sealed = edited(editor("encrypt", APP, key="k", fields=["$.a"], **bind), order(b'{"a": 1}'))
        with pytest.raises(MessageRejected, match="BoundElsewhere: the content was encrypted as a field"):
            edited(editor("decrypt", APP, key="k"), order(json.loads(sealed.body)["a"].encode()))
        body = edited(editor("encrypt", APP, key="k", **bind), order(b"1")).body.decode()
        with pytest.raises(MessageRejected, match="NotBound: a field does not say where"):
            edited(editor("decrypt", APP, key="k", fields=["$.a"]), order(json.dumps({"a": body}).encode()))
        accepting = editor("decrypt", APP, key="k", fields=["$.a"], without_path="accept")
        assert edited(accepting, order(json.dumps({"a": body}).encode())).body == b'{"a": 1}'


@pytest.mark.parametrize("bind", [{}, {"bind": ["sys.MessageId"]}])
@pytest.mark.parametrize("without_path", ["reject", "accept"])
def test_fields_cannot_be_moved_within_the_body(bind: dict[str, Any], without_path: str) -> None:
    paths = {"fields": ["$.a", "$.b"]}
    sealed = edited(editor("encrypt", APP, key="k", **bind, **paths), order(b'{"a": 1, "b": 2}'))
    document = json.loads(sealed.body)
    sealed.body = json.dumps({"a": document["b"], "b": document["a"]}).encode()
    with pytest.raises(MessageRejected, match="BoundElsewhere: a field was encrypted at another place"):
        edited(editor("decrypt", APP, key="k", without_path=without_path, **paths), sealed)


def test_a_message_without_an_id_is_bound_to_the_id_that_busway_assigns() -> None:
    sealed = edited(editor("encrypt", APP, key="k", bind=["sys.MessageId"]), order(message_id=None))
    from shared.message.metadata import deterministic_id  # noqa: PLC0415 - what the pipeline gives it

    sealed.message_id = string(deterministic_id(sealed.arrival) or "")
    assert edited(editor("decrypt", APP, key="k"), sealed).body == ORDER


def segment(header: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()


def forged(header: dict[str, Any], plain: bytes = b"plain") -> bytes:
    """Return a JWE that is genuine except for its header."""
    key = made("oct")
    protected = segment({"alg": "dir", "enc": "A256GCM", "kid": "k1", **header})
    assert isinstance(key, OctKey)
    sealed = AESGCM(key.raw_value).encrypt(b"n" * 12, plain, protected.encode())
    parts = [b"", b"n" * 12, sealed[:-16], sealed[-16:]]
    return ".".join([protected, *(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)]).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"plain text",
        b"{}",
        b'{"recipients": 5}',
        b"....",
        b"eyJhbGciOiJub25lIn0....",
        forged({"alg": "none"}),
        forged({"alg": "A128KW"}),
        forged({"alg": ["dir"]}),
        forged({"alg": "PBES2-HS256+A128KW", "p2s": "AAAA", "p2c": 2_000_000_000}),
        forged({"enc": "XC20P"}),
        forged({"zip": "DEF"}, zlib.compress(bytes(10_000_000))[2:-4]),
        forged({"crit": ["exp"], "exp": 1}),
        forged({"amqp_body": True}, b"\x00\x53\x70\x45"),
        forged({"cty": "text/\u00e9"}),
        forged({"bound": "sys.MessageId"}),
        forged({}).replace(b".", b"..", 1),
        forged({})[:-2],
        b"\xff" * 100,
    ],
)  # fmt: skip
def test_a_body_not_encrypted_with_the_key_is_rejected(content: Any) -> None:
    with pytest.raises(MessageRejected) as raised:
        edited(editor("decrypt", APP, key="k"), order(content))
    assert "4711" not in str(raised.value)
    assert json.loads(jwks(made("oct")))["keys"][0]["k"] not in str(raised.value)


def test_an_unmodified_forgery_is_valid() -> None:
    """Without this, the test above would prove nothing."""
    assert edited(editor("decrypt", APP, key="k"), order(forged({}))).body == b"plain"


def test_re_encryption_changes_the_key_and_keeps_the_content_type() -> None:
    app = settings(old=jwks(made("oct", "o")), new=jwks(made("RSA", "n")))
    sealed = edited(editor("encrypt", app, key="old", bind=["sys.MessageId"]), order())
    step = {"from": {"key": "old"}, "to": {"key": "new", "bind": ["sys.MessageId"]}}
    moved = edited(editor("re-encrypt", app, **step), sealed)
    assert edited(editor("decrypt", app, key="new", bind=["sys.MessageId"]), moved).encode() == order().encode()
    with pytest.raises(MessageRejected, match=r"UnknownKey: names the key 'n', expected one of secret old"):
        edited(editor("decrypt", app, key="old"), moved)
    fields = edited(editor("encrypt", app, key="old", fields=FIELDS), order())
    moved = edited(editor("re-encrypt", app, fields=FIELDS, **step), fields)
    assert edited(editor("decrypt", app, key="new", fields=FIELDS), moved).body == ORDER
    with pytest.raises(MessageRejected, match="NotDecrypted"):
        edited(editor("re-encrypt", app, **step), order())
