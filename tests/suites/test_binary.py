"""cbor/test-vectors (appendix A of RFC 8949) and msgpack-test-suite (Yusuke Kawasaki, MIT): what bytes are read as."""

import json
import math
from datetime import datetime
from typing import Any

import msgpack
import pytest

from shared.codecs.cbor import Cbor
from shared.codecs.message_pack import MessagePack
from shared.codecs.plain_json import PlainJson
from shared.errors import MessageRejected
from tests.suites.checkouts import documents

CBOR = [each for _, found in documents("test-vectors", "appendix_a.json") for each in found]
PACKED = [
    pytest.param(case, text, id=f"{name}-{number}-{text}")
    for _, found in documents("msgpack-test-suite", "dist/*.json")
    for name, cases in found.items()
    for number, case in enumerate(cases)
    for text in case["msgpack"]
]
FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


@pytest.mark.parametrize("case", CBOR, ids=lambda case: str(case["hex"])[:40])
def test_cbor(case: dict[str, Any]) -> None:
    content, codec, said = bytes.fromhex(case["hex"]), Cbor(), case.get("diagnostic", "")
    if "decoded" in case:
        value = codec.read(content)
        assert (type(value), value) == (type(case["decoded"]), case["decoded"])
        assert codec.read(codec.write(value)) == value
    elif said in FLOATS:
        assert str(codec.read(content)) == str(FLOATS[said])
    elif "h'" in said and "(h" not in said:
        assert isinstance(codec.read(content), bytes)
    elif said[:2] in {"0(", "1("}:
        assert isinstance(codec.read(content), datetime)
    else:
        # `undefined`, simple values, other tags and keys that are not text: no other format has them.
        with pytest.raises(MessageRejected):
            PlainJson().write(codec.read(content))


@pytest.mark.parametrize(("case", "text"), PACKED)
def test_message_pack(case: dict[str, Any], text: str) -> None:
    content, codec = bytes.fromhex(text.replace("-", "")), MessagePack()
    if "ext" in case:
        with pytest.raises(MessageRejected):
            codec.read(content)
        return
    value: Any = codec.read(content)
    if "timestamp" in case:
        assert isinstance(value, msgpack.Timestamp)
        assert [value.seconds, value.nanoseconds] == case["timestamp"]
    elif "binary" in case:
        assert value == bytes.fromhex(case["binary"].replace("-", ""))
    elif "bignum" in case:
        # Some of the bytes are those of a float, which has fewer digits.
        assert value == (int(case["bignum"]) if isinstance(value, int) else float(case["bignum"]))
    else:
        expected = next(value for kind, value in case.items() if kind != "msgpack")
        assert json.dumps(value) == json.dumps(expected) or value == expected
    assert codec.read(codec.write(value)) == value
