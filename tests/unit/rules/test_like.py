import time

import pytest

from shared.rules.like import matcher


@pytest.mark.parametrize(
    ("pattern", "escape", "fitting", "other"),
    [
        ("%bus%", None, ["bus", "abuse", "bus\nstop"], ["Bus", "bs"]),
        ("abc-%", None, ["abc-", "abc-1"], ["xabc-1", "abc"]),
        ("%.json", None, [".json", "a.json"], ["a.json ", "axjson"]),
        ("a_c", None, ["abc", "a_c", "a\nc"], ["ac", "abbc"]),
        ("%", None, ["", "x"], []),
        ("", None, [""], ["x"]),
        ("a%b%a", None, ["aba", "abba", "axbxba"], ["ab", "aa"]),
        ("%_b%", None, ["ab", "xxbx"], ["b", "ba"]),
        ("%a_%b", None, ["aab", "a1b", "aa1xb"], ["ab", "aab1"]),
        ("ABC\\%", "\\", ["ABC%"], ["ABCD", "ABC\\%"]),
        ("!!!_%", "!", ["!_", "!_x"], ["!x"]),
        ("[a-c].*", None, ["[a-c].*"], ["b.*", "[a-c]xx"]),
    ],
)
def test_patterns_match_as_documented(pattern: str, escape: str | None, fitting: list[str], other: list[str]) -> None:
    test = matcher(pattern, escape)
    assert all(test(text) for text in fitting)
    assert not any(test(text) for text in other)


@pytest.mark.parametrize(("pattern", "escape"), [("a", ""), ("a", "!!"), ("a!", "!")])
def test_an_invalid_escape_is_refused(pattern: str, escape: str) -> None:
    with pytest.raises(ValueError, match="ESCAPE"):
        matcher(pattern, escape)


def test_pattern_of_a_message_is_no_longer_than_a_rule() -> None:
    assert matcher("%" * 1024, None)("a")
    with pytest.raises(ValueError, match="at most 1024"):
        matcher("%" * 1025, None)


def test_a_hostile_pattern_is_matched_in_time_proportional_to_its_length() -> None:
    start = time.perf_counter()
    assert not matcher("%a" * 400 + "%b", None)("a" * 10_000)
    assert not matcher("%_a" * 300 + "b", None)("a" * 10_000)
    assert time.perf_counter() - start < 2
