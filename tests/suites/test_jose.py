"""Wycheproof's vectors of JSON Web Encryption and Signatures (C2SP, Apache-2.0), and the examples of RFC 7516."""

import json
from typing import Any

import pytest

from shared.editors.protection.jwe import unseal
from shared.editors.protection.jws import verify_statement
from shared.editors.protection.keys import parse_ring
from shared.errors import MessageRejected, TargetRefused
from tests.suites.checkouts import documents

# Rejected on purpose: other spellings of Base64, keys whose `alg` is no algorithm or another one.
STRICTER_SIGNATURES = {346, 347, 350, 351, 372, 373}
# Their texts are those of a valid one: what was at fault in them has been lost.
SAME_AS_VALID = {367, 370}
# Rejected on purpose: RSA1_5, key wrapping with GCM, or with 192 bits on a curve, a key for content, compression.
OTHER_ALGORITHMS = {60, 61, *range(71, 76), *range(100, 106), 112, 128, 132, 133, 135}
# The vector is for readers of the compact form.
JSON_FORM = {22}


def cases(name: str) -> list[Any]:
    """Return the keys of each group with each of its tests."""
    return [
        pytest.param(group, test, id=f"{test['tcId']}-{test['comment']}")
        for place in (("wycheproof", f"testvectors_v1/{name}_test.json"), ("rfc", f"{name}_test.json"))
        for _, found in documents(*place)
        for group in found["testGroups"]
        for test in group["tests"]
    ]


@pytest.mark.parametrize(("group", "test"), cases("json_web_signature"))
def test_signature(group: dict[str, Any], test: dict[str, Any]) -> None:
    try:
        ring = parse_ring("keys", json.dumps(group.get("public", group.get("private"))))
        text = test["jws"]
        verify_statement(text if isinstance(text, str) else json.dumps(text), ring)
        is_valid = True
    except (MessageRejected, TargetRefused):
        is_valid = False
    if test["tcId"] in STRICTER_SIGNATURES | SAME_AS_VALID:
        assert is_valid == (test["tcId"] in SAME_AS_VALID)
        return
    assert test["result"] in {"acceptable", "valid" if is_valid else "invalid"}


@pytest.mark.parametrize(("group", "test"), cases("json_web_encryption"))
def test_encryption(group: dict[str, Any], test: dict[str, Any]) -> None:
    try:
        ring = parse_ring("keys", json.dumps(group["private"]))
        text = test["jwe"]
        _, found = unseal((text if isinstance(text, str) else json.dumps(text)).encode(), ring)
    except (MessageRejected, TargetRefused):
        found = None
    if test["tcId"] in OTHER_ALGORITHMS:
        assert found is None
        return
    if found is not None:
        assert test["result"] != "invalid" or test["tcId"] in JSON_FORM
        assert found.hex() == test.get("pt", found.hex())
    else:
        assert test["result"] != "valid"
