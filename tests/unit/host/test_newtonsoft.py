"""Numbers and text as .NET writes them in trigger metadata."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.host import newtonsoft
from local.host.newtonsoft import Single


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1e21, "1E+21"),
        (1e-7, "1E-07"),
        (1e-5, "1E-05"),
        (0.0001, "0.0001"),
        (1e15, "1E+15"),
        (123456789012345.0, "123456789012345.0"),
        (1.5e300, "1.5E+300"),
        (1000.0, "1000.0"),
        (-2.5, "-2.5"),
        (Single(1e7), "1E+07"),
        (Single(0.25), "0.25"),
    ],
)
def test_numbers_have_a_point_or_the_exponent_of_dotnet(number: float, text: str) -> None:
    assert newtonsoft.dumps(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_value(number: float) -> None:
    assert float(newtonsoft.dumps(number)) == number


def test_line_ends_and_control_characters_are_escaped_and_other_text_is_not() -> None:
    assert newtonsoft.dumps('é\u2028\u2029\x85<"\\\n\x01😀') == '"é\\u2028\\u2029\\u0085<\\"\\\\\\n\\u0001😀"'


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@given(_VALUES)
def test_values_are_json(value: object) -> None:
    assert json.loads(newtonsoft.dumps(value)) == value
