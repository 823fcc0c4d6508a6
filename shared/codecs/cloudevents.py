"""
CloudEvents 1.0: the rules of attributes, and the JSON format of an event.

Source: CloudEvents 1.0.2 specification; JSON Event Format 1.0.2.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec

from shared.codecs.plain_json import PlainJson
from shared.codecs.text import charset_in
from shared.errors import MessageRejected

INVALID = "InvalidEvent"
TOO_MANY = "TooManyEvents"
MOST_IN_BATCH = 5000
"""As many as Event Grid delivers at once at most: each takes thousands of bytes, however short its text is."""
MEDIA_TYPE = "application/cloudevents+json"
BATCH = "application/cloudevents-batch"
ANY_FORMAT = "application/cloudevents"

type Attribute = str | bool | int

_REQUIRED = ("specversion", "id", "source", "type")
_OPTIONAL = ("datacontenttype", "dataschema", "subject", "time")
_NAME = re.compile(r"[a-z0-9]+")
# Control characters, noncharacters of Unicode, and surrogates, which cannot be encoded.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff\ud800-\udfff]")
_URI_REFERENCE = re.compile(r"(?:[!#$&-;=?-Z_a-z~\[\]]|%[0-9A-Fa-f]{2})+")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)")
_MEDIA_TYPE = re.compile(r"[^\s/;]+/[^\s/;]+(?:\s*;.*)?")
_LONGEST_DECLARATION = 1000
_LARGEST_INTEGER = 2**31
_JSON = PlainJson()
_RAW_ITEMS = msgspec.json.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MOST_IN_BATCH)])
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()


_SPECVERSION = re.compile(r"1\.0(?:\.\d+)?")
_NOT_IN_URI = re.compile(r"%(?![0-9A-Fa-f]{2})|[^!#$%&-;=?-Z_a-z~\[\]]")


class Event(NamedTuple):
    """Attributes by name, without those that are null, and the bytes of the data, None without data."""

    attributes: Mapping[str, Attribute]
    data: bytes | None


def received(attributes: Mapping[str, Attribute | float | Decimal]) -> dict[str, Attribute]:
    """
    Return the *attributes* of an event that was received as the specification has them; they are still to be checked.

    Common producers send a source with letters beyond ASCII, `"dataschema": "#"` (Event Grid), empty attributes,
    numbers of more than 32 bits, and names with capitals.
    """
    found: dict[str, Attribute] = {}
    for name, value in attributes.items():
        label = name if name in _REQUIRED or name in _OPTIONAL or name.lower() in attributes else name.lower()
        if value == "" and name in _OPTIONAL:
            continue
        if isinstance(value, float | Decimal) or (not isinstance(value, str) and not _has_32_bits(value)):
            # As for other attributes, the text stays wrong where only text is expected.
            found[label] = value if label in _REQUIRED or label in _OPTIONAL else str(value)  # type: ignore[assignment]
        elif isinstance(value, str) and name in {"source", "dataschema"}:
            address = _NOT_IN_URI.sub(_encoded_char, value)
            # Without a scheme it names no schema.
            if name == "source" or _ABSOLUTE.match(address):
                found[name] = address
        elif isinstance(value, str) and name == "specversion" and _SPECVERSION.fullmatch(value):
            found[name] = "1.0"
        elif isinstance(value, str) and name == "time" and value[10:11] == " ":
            found[name] = f"{value[:10]}T{value[11:]}"
        else:
            found[label] = value
    return found


def _has_32_bits(value: int) -> bool:
    return -_LARGEST_INTEGER <= value < _LARGEST_INTEGER


def _encoded_char(found: re.Match[str]) -> str:
    try:
        return "".join(f"%{byte:02X}" for byte in found[0].encode())
    except UnicodeEncodeError as error:
        raise MessageRejected(INVALID, "source: has a character that is not allowed in attributes") from error


def check(attributes: Mapping[str, Attribute]) -> None:
    """Raise MessageRejected unless *attributes* are those of an event of version 1.0."""
    missing = [name for name in _REQUIRED if name not in attributes]
    if missing:
        raise MessageRejected(INVALID, f"event has no {', '.join(missing)}")
    if attributes["specversion"] != "1.0":
        raise MessageRejected(INVALID, "specversion: expected 1.0")
    for name, value in attributes.items():
        if not _NAME.fullmatch(name) or name == "data":
            problem = "event has an attribute with an invalid name, expected a to z and 0 to 9, and not data"
            raise MessageRejected(INVALID, problem)
        label = name if name in _REQUIRED or name in _OPTIONAL else "an extension attribute"
        if isinstance(value, str):
            if _FORBIDDEN.search(value):
                raise MessageRejected(INVALID, f"{label}: has a character that is not allowed in attributes")
        elif label == name:
            raise MessageRejected(INVALID, f"{label}: expected text")
        elif not _has_32_bits(value):
            raise MessageRejected(INVALID, f"{label}: got a number out of range, expected 32 bits")
    for name in (*_REQUIRED, *_OPTIONAL):
        if name in attributes:
            _check_form(name, str(attributes[name]))


def _check_form(name: str, value: str) -> None:
    match name:
        case "source":
            fits, form = _URI_REFERENCE.fullmatch(value), "a URI reference"
        case "dataschema":
            fits, form = _ABSOLUTE.match(value) and _URI_REFERENCE.fullmatch(value), "a URI"
        case "time":
            fits, form = _TIME.fullmatch(value), "a time as in RFC 3339"
        case "datacontenttype":
            fits, form = _MEDIA_TYPE.fullmatch(value), "a media type"
        case _:
            fits, form = re.search(r".", value), "text that is not empty"
    if not fits or (name == "time" and not _is_time(value)):
        raise MessageRejected(INVALID, f"{name}: expected {form}")


def _is_time(value: str) -> bool:
    try:
        # RFC 3339 has leap seconds, Python does not.
        datetime.fromisoformat(value.upper().replace(":60", ":59", 1) if value[16:19] == ":60" else value.upper())
    except ValueError:
        return False
    return True


def read(content: bytes) -> Event:
    """Return the event in *content*, which is in the JSON format; raises MessageRejected."""
    members = _JSON.read(content)
    if not isinstance(members, dict):
        raise MessageRejected(INVALID, "body is not a JSON object, expected an event")
    given: dict[str, Attribute | float | Decimal] = {}
    for name, value in members.items():
        if name in {"data", "data_base64"} or value is None:
            continue
        if not isinstance(value, str | bool | int | float | Decimal):
            label = name if name in _REQUIRED or name in _OPTIONAL else "an extension attribute"
            raise MessageRejected(INVALID, f"{label}: expected text, a boolean or a number")
        given[name] = value
    attributes = received(given)
    check(attributes)
    if members.get("data_base64") is not None:
        if "data" in members:
            raise MessageRejected(INVALID, "event has data and data_base64, expected one")
        try:
            return Event(attributes, b64decode(str(members["data_base64"]), validate=True))
        except (NotBase64, ValueError) as error:
            raise MessageRejected(INVALID, "data_base64: expected Base64") from error
    if "data" not in members:
        return Event(attributes, None)
    declared = attributes.setdefault("datacontenttype", "application/json")
    if is_json(str(declared)):
        # The text of the body itself, so that numbers keep their spelling.
        text = bytes(_RAW.decode(content)["data"])
        return Event(attributes, text if _is_utf8(str(declared), text) else _encoded(text.decode(), str(declared)))
    if not isinstance(members["data"], str):
        raise MessageRejected(INVALID, "data: expected text, as datacontenttype is not JSON")
    return Event(attributes, _encoded(members["data"], str(declared)))


def split_batch(content: bytes) -> list[bytes]:
    """Return the text of each event of a JSON array, unread; raises MessageRejected."""
    try:
        return [bytes(each) for each in _RAW_ITEMS.decode(content)]
    except msgspec.ValidationError as error:
        text = f"body is no array, or one of more than {MOST_IN_BATCH} events"
        raise MessageRejected(TOO_MANY if content.lstrip()[:1] == b"[" else INVALID, text) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MessageRejected(INVALID, "body is not a JSON array, expected events") from error


def write(event: Event) -> bytes:
    """Return *event* in the JSON format; raises MessageRejected if its data is declared as JSON and is not."""
    head = _ENCODER.encode(event.attributes)
    if event.data is None:
        return head
    declared = event.attributes.get("datacontenttype")
    if isinstance(declared, str) and _is_utf8(declared, event.data):
        if is_json(declared):
            _JSON.read(event.data)
            return b'%b,"data":%b}' % (head[:-1], event.data.strip(b" \t\r\n"))
        text = _text(event.data) if is_text(declared) else None
        if text is not None:
            return b'%b,"data":%b}' % (head[:-1], _ENCODER.encode(text))
    return b'%b,"data_base64":"%b"}' % (head[:-1], b64encode(event.data))


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON, by the rule of the JSON format of events."""
    name = media_type.partition(";")[0].strip().lower()
    return name.endswith(("/json", "+json"))


def is_text(media_type: str) -> bool:
    """Return whether a media type is text, which can be a string in JSON."""
    name = media_type.partition(";")[0].strip().lower()
    return name.startswith("text/") or name.endswith(("/xml", "+xml"))


def _is_utf8(media_type: str, content: bytes) -> bool:
    """Return whether *content* is in UTF-8 by its media type, or what the declaration of XML says."""
    try:
        return charset_in(media_type, content) in {None, "utf-8", "ascii"}
    except MessageRejected:
        return False  # as Base64 nothing of it changes


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _encoded(text: str, media_type: str) -> bytes:
    try:
        return text.encode(charset_in(media_type, text[:_LONGEST_DECLARATION].encode()) or "utf-8")
    except (UnicodeError, MessageRejected) as error:
        raise MessageRejected(INVALID, "data: expected text in the character set of datacontenttype") from error
