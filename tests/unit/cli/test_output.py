"""What commands print of messages does not act on the terminal."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import printable
from cli.sdk_receive import _line

# Categories of controls, formats (which include directions of writing), and separators of lines and paragraphs.
ACTING = {"Cc", "Cf", "Zl", "Zp", "Cs"}


@given(st.text())
def test_no_character_acts_on_a_terminal(text: str) -> None:
    assert not ACTING & {unicodedata.category(each) for each in printable(text)}
    if not ACTING & {unicodedata.category(each) for each in text}:
        assert all(each in printable(text) for each in text if each.isprintable())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("grün €", "grün €"),
        ("\x1b]8;;http://x\x07a", r"\x1b]8;;http://x\x07a"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb", r"a\u202eb"),
        ("a\nb\r", r"a\nb\r"),
    ],
)
def test_bodies_names_and_values_of_received_messages_are_escaped(text: str, printed: str) -> None:
    assert printable(text) == printed
    line = _line(text, {"message_id": text}, {text: "value"})
    assert line == f"{printed}  message_id={printed} {printed}=value"
