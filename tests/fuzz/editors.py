"""
Damaged bodies and properties for codecs, editors and rules: `python -m tests.fuzz editors --seconds 60 --seed 1`.

Whatever a message is, an editor passes it on, withholds it or raises MessageRejected. A case that does not hold is
printed as hexadecimal, to become a test.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from shared.codecs.avro import AvroSchema, RawAvro, SingleObject
from shared.codecs.avro_container import read_container, write_container
from shared.codecs.cbor import Cbor
from shared.codecs.compression import Encoding, Limits, compressor, decompressor
from shared.codecs.message_pack import MessagePack
from shared.codecs.plain_json import PlainJson
from shared.codecs.protobuf import Protobuf
from shared.codecs.xml import Xml
from shared.editors.filter import FilterStep
from shared.editors.options import Step
from shared.editors.split import SplitStep
from shared.editors.transform import TransformStep
from shared.errors import MessageRejected
from shared.message.message import Message
from tests.fakes import task_facts
from tests.fuzz import campaign
from tests.fuzz.amqp import Mutator
from tests.messages import ORIGIN, delivered
from tests.unit.codecs.test_protobuf import BOMBS, as_field, descriptors

type Read = Callable[[bytes], object]

_ORDER = {"id": "a1", "lines": [{"sku": "x", "count": 3, "price": 1.5}], "note": None, "paid": True}
_SCHEMA = AvroSchema(b'{"type": "map", "values": ["null", "long", "string", {"type": "array", "items": "double"}]}')
_VALUE = {"a": 1, "b": "text", "c": [1.5, 2.5], "d": None}
_BODY = PlainJson().write([_ORDER, _ORDER])
_WHOLE = delivered(1, body=PlainJson().write(_ORDER), content_type="application/json")
_ENCODINGS: tuple[Encoding, ...] = ("gzip", "zstd", "brotli")
_STEPS: tuple[Step, ...] = (
    TransformStep.model_validate({"transform": {"expression": "{id: id, all: lines[].count | sum(@)}"}}),
    FilterStep.model_validate({"filter": "priority > 5 OR sys.MessageId LIKE 'a%' AND EXISTS(note)"}),
    SplitStep.model_validate({"split": {}}),
    SplitStep.model_validate({"split": {"from": "avro"}}),
)


def readers() -> Mapping[str, tuple[Read, list[bytes]]]:
    """Return by name what reads a body, and valid bodies of it."""
    protobuf = Protobuf(descriptors(), "acme.Order")
    json = PlainJson().write(_ORDER)
    made: dict[str, tuple[Read, list[bytes]]] = {
        "json": (PlainJson().read, [json]),
        "cbor": (Cbor().read, [Cbor().write(_ORDER), b"\xc4\x82\x20\xc2\x43abc"]),
        "messagepack": (MessagePack().read, [MessagePack().write(_ORDER)]),
        "xml": (Xml().read, [b"<a b='c'><d>e</d><d/></a>"]),
        "raw-avro": (RawAvro(_SCHEMA).read, [_SCHEMA.write(_VALUE)]),
        "avro-object": (SingleObject(_SCHEMA).read, [SingleObject(_SCHEMA).write(_VALUE)]),
        "avro-container": (read_container, [write_container(_SCHEMA, [_VALUE, _VALUE])]),
        "protobuf": (protobuf.read, [as_field(bomb)[:500] for bomb in BOMBS.values()]),
    }
    for encoding in _ENCODINGS:
        made[encoding] = (decompressor(encoding, Limits(2**20)), [compressor(encoding, 5)(json)])
    return made


def editors() -> Mapping[str, Read]:
    """Return by name what edits an encoded message."""
    facts = task_facts()

    def edits(step: Step) -> Read:
        editor = step.editor(facts)
        return lambda content: editor.edit(Message.received(content, ORIGIN))  # type: ignore[union-attr]  # no BatchEditor

    return {f"{number}-{step.verb()}": edits(step) for number, step in enumerate(_STEPS)}


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Return *content* with a few of its bytes changed, repeated or left out."""
    made = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, length = draw.randrange(len(made) + 1), draw.choice((1, 1, 4, 16))
        match draw.randrange(4):
            case 0:
                made[at : at + 1] = bytes((draw.randrange(256),))
            case 1:
                del made[at : at + length]
            case 2:
                made[at:at] = made[at : at + length] * draw.choice((1, 2, 200))
            case _:
                made[at:at] = draw.randbytes(length)
    return bytes(made)


def run(seed: int, cases: int | None = None, seconds: float | None = None) -> Counter[str]:
    """Try damaged cases until *cases* or *seconds* are reached; return how many were read and rejected."""
    return campaign.run(_cases(random.Random(seed), Mutator(seed)), seed, cases, seconds)


def _cases(draw: random.Random, messages: Mutator) -> Iterator[campaign.Case]:
    of_bodies, of_messages = readers(), editors()

    def check() -> list[str]:
        try:
            read(content)
        except MessageRejected:
            return ["rejected"]
        return ["read"]

    while True:
        name = draw.choice([*of_bodies, *of_messages])
        if name in of_bodies:
            read, valid = of_bodies[name]
            content = damaged(draw.choice(valid), draw)
        else:
            read = of_messages[name]
            content = draw.choice((messages.next(), delivered(1, body=damaged(_BODY, draw)), damaged(_WHOLE, draw)))
        yield campaign.Case(name, [content], check)
