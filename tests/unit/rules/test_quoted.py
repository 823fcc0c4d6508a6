"""Names in double quotes where another SQL has text."""

import pytest

from shared.rules import quoted_values


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('color = "red"', ["red"]),
        ('color <> "red" OR color LIKE "r%"', ["red", "r%"]),
        ('color IN ("red", \'blue\', "green")', ["red", "green"]),
        ('SET color = "red"; REMOVE "old color"', ["red"]),
        ('SET a = b + "x"', ["x"]),
        # A property with a name that needs delimiters.
        ("\"shipping country\" = 'NO'", []),
        ('"shipping country" IS NOT NULL AND EXISTS("made in")', []),
        ('color = [red] AND ("made in" = 1)', []),
        ('color = user."red"', []),
        ("color = '\"red\"'", []),
    ],
)
def test_only_names_in_the_place_of_a_value_are_found(text: str, names: list[str]) -> None:
    assert quoted_values(text) == names
