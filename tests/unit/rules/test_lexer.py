import pytest

from shared.rules import RuleSyntaxError, quoted_values
from shared.rules.lexer import Kind, is_regular_identifier, tokens_of


def kinds_and_texts(text: str) -> list[tuple[Kind, str]]:
    return [(token.kind, token.text) for token in tokens_of(text)[:-1]]


def test_keywords_are_recognised_in_any_case() -> None:
    assert kinds_and_texts("not Exists") == [(Kind.KEYWORD, "NOT"), (Kind.KEYWORD, "EXISTS")]


def test_a_hyphen_is_a_minus_outside_brackets() -> None:
    assert [text for _, text in kinds_and_texts("repl-sequence")] == ["repl", "-", "sequence"]
    assert kinds_and_texts("[repl-sequence]") == [(Kind.NAME, "repl-sequence")]


@pytest.mark.parametrize(
    ("text", "kind", "content"),
    [
        ("'it''s'", Kind.STRING, "it's"),
        ("''", Kind.STRING, ""),
        ("[a]]b]", Kind.NAME, "a]b"),
        ('"Contoso ""&"" Northwind"', Kind.NAME, 'Contoso "&" Northwind'),
        ("[and]", Kind.NAME, "and"),
        ("Größe_2", Kind.NAME, "Größe_2"),
        ("@dtParam", Kind.PARAMETER, "dtParam"),
        ("1894", Kind.INTEGER, "1894"),
        ("1894.1204", Kind.DOUBLE, "1894.1204"),
        ("0.5E-2", Kind.DOUBLE, "0.5E-2"),
        ("1e3", Kind.DOUBLE, "1e3"),
        ("<>", Kind.SYMBOL, "<>"),
        ("\u0131s", Kind.NAME, "\u0131s"),
    ],
)
def test_each_kind_of_token_is_recognised(text: str, kind: Kind, content: str) -> None:
    assert kinds_and_texts(text) == [(kind, content)]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("'open", 6),
        ("a = 'open", 10),
        ("[open", 6),
        ('"open', 6),
        ("a = []", 5),
        ("2nd = 1", 2),
        ("1.", 2),
        ("a = 1.2.3", 8),
        ("@ = 1", 2),
        ("@", 2),
        ("_a = 1", 1),
        ("a # b", 3),
        ("a = '\ud800'", 6),
    ],
)
def test_an_invalid_character_is_reported_with_its_column(text: str, column: int) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        tokens_of(text)
    assert (caught.value.line, caught.value.column) == (1, column)
    str(caught.value).encode()


def test_regular_identifiers_start_with_a_letter_and_are_not_keywords() -> None:
    assert is_regular_identifier("a_1")
    assert not any(map(is_regular_identifier, ["", "_a", "1a", "a-b", "Like", "a b", "x²"]))


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
