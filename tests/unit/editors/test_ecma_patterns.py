"""Patterns of ECMA-262 with Unicode, and numbers with all their digits, in JSON schemas."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest

from shared.editors.content.ecma_patterns import NotAPattern, python_pattern
from shared.editors.content.json_schema import JsonSchema
from shared.errors import MessageRejected
from tests.unit.editors.test_json_schema_suite import is_valid, load


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (r"^DE\d{6}$", ["DE123456"], ["DE123456\n", "DE12345\u0666", "DE12345\uff16"]),
        (r"^\w+$", ["ab_1"], ["Küche", "a\n"]),
        ("^.+$", ["a\u0085b"], ["a\u2028b", "a\rb", "a\n"]),
        (r"^\s$", ["\ufeff", "\u2028", "\v"], ["\x1c", "\x85", "\u180e"]),
        (r"^\S$", ["\x1c"], ["\ufeff"]),
        (r"^[\d\D]$", ["٢"], ["\n\n"]),
        (r"^[^\W_]+$", ["aZ9"], ["ä", "_"]),
        (r"\bé", ["aé"], ["é"]),
        (r"^\p{L}+$", ["Straße", "名"], ["a1", ""]),
        (r"^\P{Lu}$", ["a"], ["A"]),
        (r"^[\p{Lu}\p{Nd}-]+$", ["Ä٢-"], ["a"]),
        (r"^\p{Script=Greek}+$", ["λόγος"], ["a"]),
        (r"^(?<year>\d{4})-\k<year>$", ["2026-2026"], ["2026-2025"]),
        (r"^(?:(a)|b)\1$", ["aa", "b"], ["ab", "ba"]),
        (r"^\1(a)$", ["a"], ["aa"]),
        (r"^\cJ\x41\u0042\u{1F600}$", ["\nAB😀"], ["JAB😀"]),
        (r"^\ud83d\ude00[😀-😂]$", ["😀😁"], ["😀😃"]),
        ("^[^]$", ["\n"], [""]),
        ("[]", [], ["", "a"]),
        (r"^[[:a]$", ["[", ":"], [":]"]),
        (r"^\/a\-\@$", ["/a-@"], []),
        (r"^a{2}b{1,}c{0,2}?$", ["aabbc"], ["ab"]),
        (r"^(?!x)(?=.*\d).{2,}$", ["a1"], ["x1", "ab"]),
        ("(?<!a)b", ["b", "cb"], ["ab"]),
    ],
)
def test_a_pattern_is_read_as_ecma_262_does(pattern: str, matches: list[str], others: list[str]) -> None:
    made = re.compile(python_pattern(pattern))
    assert [each for each in matches if not made.search(each)] == []
    assert [other for other in others if made.search(other)] == []


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("a{,3}", "nothing can be repeated"),
        ("(?i)abc", "a group that ECMA-262 does not have"),
        (r"\Aabc\Z", r"the escape \A"),
        (r"\p{isLetter}", "no property of Unicode"),
        (r"\pL", "without a property"),
        ("a++", "nothing can be repeated"),
        ("(a", "a ( without )"),
        ("a)", "a ) without ("),
        ("[a", "a [ without ]"),
        (r"[\d-x]", "no characters"),
        ("[b-a]", "out of order"),
        (r"\2(a)", "group 2, which is missing"),
        (r"\k<a>(?<b>a)", "group a, which is missing"),
        ("(?<a>a)(?<a>b)", "two groups with the name a"),
        ("a{3,2}", "out of order"),
        ("a{99999999999}", "too large"),
        (r"\u{110000}", "beyond 10FFFF"),
        ("\\", "the escape"),
        ("(?<=a+)b", "look-behind requires fixed-width"),
        ("(" * 5000, "too deep"),
    ],
)
def test_what_is_no_pattern_is_an_error_that_says_why(pattern: str, problem: str) -> None:
    with pytest.raises(NotAPattern, match=re.escape(problem)):
        python_pattern(pattern)


def test_a_schema_with_an_invalid_pattern_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"schema.json: \$.properties.a.pattern: '\(\?i\)x' has a group"):
        load(tmp_path, {"properties": {"a": {"pattern": "(?i)x"}}})


def test_patterns_of_properties_are_translated_wherever_schemas_are(tmp_path: Path) -> None:
    schema = load(
        tmp_path,
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            # Two patterns that are one in Python, and a property with the name of a keyword.
            "patternProperties": {"^a$": {"minimum": 1}, "^\\x61$": {"maximum": 3}},
            "properties": {"const": {"pattern": "^b$"}, "default": {"patternProperties": {"^c$": False}}},
            "unevaluatedProperties": False,
        },
    )
    assert is_valid(schema, {"a": 2, "const": "b", "default": {}})
    for wrong in ({"a": 0}, {"a": 4}, {"a\n": 2}, {"const": "b\n"}, {"default": {"c": 1}}):
        assert not is_valid(schema, wrong)


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        ('{"multipleOf": 0.01}', ["0.07", "4.02", "19.99", "1e300", "9007199254740993.01"], ["0.071", "1e-3", "1.001"]),
        ('{"multipleOf": 1e-300}', ["1e-300", "0.3"], ["1e-301"]),
        ('{"multipleOf": 3}', ["3e999999999", "0e-9"], ["1e999999999", "3e-1"]),
        ('{"maximum": 0.3}', ["0.3", "0.30"], ["0.30000000000000001"]),
        ('{"exclusiveMaximum": 1}', ["0.99999999999999999999"], ["1.0"]),
        ('{"minimum": -9007199254740992}', ["-9007199254740992"], ["-9007199254740993", "-1e400"]),
        ('{"type": "integer"}', ["1.0", "1e2", "1e400", "0e-5"], ["1.0000000000000000001", "1e-400"]),
        ('{"const": 0.1}', ["0.1", "0.10", "1e-1"], ["0.1000000000000000000001"]),
        ('{"enum": [9007199254740993]}', ["9007199254740993.0"], ["9007199254740992"]),
        ('{"uniqueItems": true}', ["[1, true]", "[0.1, 0.10000000000000000001]", "[[1], [true]]"], ["[1, 1.0]"]),
        ('{"uniqueItems": true}', ['[{"a": 1}, {"a": true}]'], ["[[1], [true], [1]]", '[{"a":1,"b":2},{"b":2,"a":1}]']),
        ('{"maxLength": 2.0}', ['"ab"'], ['"abc"']),
    ],
)
def test_numbers_are_exact(tmp_path: Path, schema: str, valid: list[str], invalid: list[str]) -> None:
    made = load(tmp_path, json.loads(schema))
    assert [each for each in valid if not accepts(made, each)] == []
    assert [each for each in invalid if accepts(made, each)] == []


def test_every_price_up_to_a_thousand_is_a_multiple_of_a_cent(tmp_path: Path) -> None:
    made = load(tmp_path, {"multipleOf": 0.01})
    for cents in range(1, 100_001, 7):
        made.check(str(Decimal(cents).scaleb(-2)).encode())


def accepts(schema: JsonSchema, body: str) -> bool:
    try:
        schema.check(body.encode())
    except MessageRejected:
        return False
    return True
