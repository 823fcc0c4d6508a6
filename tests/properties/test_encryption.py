"""Decrypt reverses encrypt for any content, and altered content is never accepted."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp import sections
from shared.editors.content.json_fields import Fields
from shared.errors import MessageRejected
from shared.message.message import Message
from tests import editing, keys, messages
from tests.strategies import assigned_primitives, bodies

KINDS = ["oct", "EC", "X25519"]


def editor(verb: str, kind: str = "oct", **options: Any) -> Any:
    app = keys.settings(k=keys.jwks(keys.made(kind)))
    return editing.editor(verb, app, key="k", **options)


EDITORS = {(verb, kind): editor(verb, kind) for verb in ("encrypt", "decrypt") for kind in KINDS}
BOUND = {verb: editor(verb, bind=["sys.MessageId"]) for verb in ("encrypt", "decrypt")}
SIGN, VERIFY = editor("sign", properties=["sys.MessageId"]), editor("verify", properties=["sys.MessageId"])


def result(each: Any, message: Any) -> Any:
    (found,) = editing.answers(each, message)
    return found


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@st.composite
def sealable(draw: st.DrawFn, of: Any = None) -> Message:
    """Return a message whose body is data, unless drawn from *of*."""
    named = draw(st.dictionaries(names, assigned_primitives, max_size=3))
    made = messages.message(1, body=draw(st.binary(max_size=500)), named=named)
    if of is not None:
        made.sections.body = draw(of)
    return made


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values, max_size=3),
    max_leaves=8,
)


@given(sealable(of=bodies.filter(bool)), st.sampled_from(KINDS))
def test_decrypt_reverses_encrypt(message: Any, kind: str) -> None:
    sealed = editing.edited(EDITORS["encrypt", kind], message)
    back = editing.edited(EDITORS["decrypt", kind], sealed)
    # The length of a single data section may have been encoded in more bytes than necessary.
    ((number, value), *more) = sections.body_parts(message.sections.body)
    if number == sections.DATA and not more:
        assert back.body == value.payload
        back.sections.body = message.sections.body
    assert back.encode() == message.encode()


@given(json_values, json_values, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_decrypt_restores_fields_in_any_layout(first: Any, second: Any, indent: int | None, ascii_only: bool) -> None:
    fields = ["$.card[*]", "$['a b']"]
    document = {"card": {"x": first, "y": [second]}, "rest": first, "a b": second, "more": [1.50, 1e5]}
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    message = messages.message(1, body=body)
    sealed = result(editor("encrypt", fields=fields), message)
    if isinstance(sealed, MessageRejected):
        assert sealed.reason == "NotJson"
        return
    assert json.loads(sealed[0].body)["rest"] == first
    assert editing.edited(editor("decrypt", fields=fields), sealed[0]).body == body


@given(sealable(), st.data())
def test_no_bit_of_an_encryption_can_be_flipped(message: Any, data: st.DataObject) -> None:
    sealed = editing.edited(BOUND["encrypt"], message)
    body = bytearray(sealed.body)
    index = data.draw(st.integers(0, len(body) - 1))
    body[index] ^= 1 << data.draw(st.integers(0, 7))
    sealed.body = bytes(body)
    assert isinstance(result(BOUND["decrypt"], sealed), MessageRejected)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode) | json_values.map(json.dumps).map(str.encode))
def test_other_content_is_rejected_by_decrypt(body: Any) -> None:
    message = messages.message(1, body=body)
    assert isinstance(result(BOUND["decrypt"], message), MessageRejected)


@given(sealable(), st.data())
def test_signature_is_valid_and_no_bit_can_be_flipped(message: Any, data: st.DataObject) -> None:
    signed = editing.edited(SIGN, message)
    assert isinstance(result(VERIFY, signed), tuple)
    part = data.draw(st.sampled_from(["body", "id", "signature"]))
    if part == "body":
        body = bytearray(signed.body or b"\0")
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        signed.body = bytes(body)
    else:
        name = b"m-1" if part == "id" else signed.application_property("repl-signature").payload.encode()
        flipped = bytearray(name)
        flipped[data.draw(st.integers(0, len(name) - 1))] ^= 1 << data.draw(st.integers(0, 6))
        raw = signed.sections
        if part == "id":
            raw.properties = raw.properties.replace(name, bytes(flipped))
        else:
            raw.application_properties = raw.application_properties.replace(name, bytes(flipped))
    touched = Message(signed.sections, signed.arrival)
    assert isinstance(result(VERIFY, touched), MessageRejected)


@given(st.text(max_size=200))
def test_other_text_is_rejected_by_verify(text: str) -> None:
    from shared.amqp.values import string  # noqa: PLC0415 - for this test alone

    try:
        named = {"repl-signature": string(text)}
        message = messages.message(1, named=named)
    except UnicodeEncodeError:
        return
    assert isinstance(result(VERIFY, message), MessageRejected)


@given(json_values, st.lists(st.sampled_from(["a", "b", 0, 1, None]), min_size=1, max_size=3))
def test_path_finds_its_value(document: Any, steps: Any) -> None:
    text = json.dumps(document)
    path = "$" + "".join("[*]" if step is None else f"[{step!r}]" for step in steps)
    found: list[object] = []

    def noted(value: Any, _: str) -> Any:
        found.append(json.loads(value))
        return value

    Fields([path], optional=True).replace(text.encode(), noted)
    wanted = [document]
    for step in steps:
        below: list[object] = []
        for each in wanted:
            if isinstance(each, dict):
                below += each.values() if step is None else [each[step]] if step in each else []
            elif isinstance(each, list):
                below += each if step is None else [each[step]] if isinstance(step, int) and step < len(each) else []
        wanted = below
    assert found == wanted
