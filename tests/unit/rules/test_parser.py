import pytest

from shared.amqp import values
from shared.rules import RuleSyntaxError, parse_action, parse_filter
from shared.rules.lexer import MAX_CHARACTERS, MAX_NESTING
from shared.rules.parser import MAX_STATEMENTS
from shared.rules.syntax import (
    And,
    Chain,
    Comparison,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    NewId,
    Not,
    Or,
    Parameter,
    Predicate,
    Property,
    PropertyNamed,
    Remove,
    Scope,
    Set,
    Signed,
)

a, b, c = Property("a"), Property("b"), Property("c")
one = Literal(values.long(1))


def condition(text: str) -> Predicate:
    return parse_filter(text).condition


def left_side(text: str) -> Expression:
    comparison = condition(text)
    assert isinstance(comparison, Comparison)
    return comparison.left


def test_not_binds_tighter_than_and_which_binds_tighter_than_or() -> None:
    is_one = Comparison(a, "=", one)
    assert condition("a = 1 OR NOT a = 1 AND a = 1") == Or((is_one, And((Not(is_one), is_one))))
    assert condition("(a = 1 OR a = 1) AND a = 1") == And((Or((is_one, is_one)), is_one))


def test_products_bind_tighter_than_sums_and_chains_are_flat() -> None:
    assert left_side("a + b * c - 1 = 1") == Chain(a, (("+", Chain(b, (("*", c),))), ("-", one)))
    assert left_side("(a + b) * c = 1") == Chain(Chain(a, (("+", b),)), (("*", c),))


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("a != 1", Comparison(a, "<>", one)),
        ("sys.Label is not null", IsNull(Property("Label", Scope.SYSTEM), is_negated=True)),
        ("USER.a IS NULL", IsNull(a)),
        ("exists(a)", Exists(a)),
        ("a IN (1, b)", In(a, (one, b))),
        ("a NOT IN (1)", In(a, (one,), is_negated=True)),
        ("a NOT LIKE b ESCAPE c", Like(a, b, c, is_negated=True)),
        ("a = newid()", Comparison(a, "=", NewId())),
        ("p(b) = property(c)", Comparison(PropertyNamed(b), "=", PropertyNamed(c))),
        ("p = property", Comparison(Property("p"), "=", Property("property"))),
        ("user = sys", Comparison(Property("user"), "=", Property("sys"))),
        ("sys.[Label] = @Label", Comparison(Property("Label", Scope.SYSTEM), "=", Parameter("Label"))),
        ("-1 = -a", Comparison(Literal(values.long(-1)), "=", Signed("-", a))),
        ("+1.5 = +a", Comparison(Literal(values.double(1.5)), "=", Signed("+", a))),
        ("a -1 = 1", Comparison(Chain(a, (("-", one),)), "=", one)),
        ("a = -9223372036854775808", Comparison(a, "=", Literal(values.long(-(2**63))))),
        ("((a)) = (1)", Comparison(a, "=", one)),
        ("(((a = 1)))", Comparison(a, "=", one)),
    ],
)
def test_each_form_is_parsed_and_printed_in_a_form_that_parses_again(text: str, node: object) -> None:
    assert condition(text) == node
    assert condition(str(node)) == node


def test_statements_are_separated_by_semicolons_commas_or_nothing() -> None:
    expected = (Set(a, one), Remove(b), Set(Property("To", Scope.SYSTEM), Literal(values.string("x"))))
    for text in (
        "SET a = 1; REMOVE b; SET sys.To = 'x';",
        "set a=1 remove b set sys.To='x'",
        "SET a = 1, REMOVE b, SET sys.To = 'x'",
    ):
        assert parse_action(text).statements == expected


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "a value"),
        ("color", 6, "a comparison"),
        ("color AND a = 1", 7, "a comparison"),
        ("a = 1 OR color", 15, "a comparison"),
        ("NOT color", 10, "a comparison"),
        ("TRUE", 5, "a comparison"),
        ("a = ", 5, "a value"),
        ("a = 1 b", 7, "AND, OR or the end"),
        ("a = 1 = 1", 7, "AND, OR or the end"),
        ("(a = 1", 7, "')'"),
        ("a = 1)", 6, "AND, OR or the end"),
        ("(a = 1) + 2 = 3", 1, "a value, not a condition"),
        ("1 + (a = 1) = 3", 5, "a value, not a condition"),
        ("-(a = 1) = 3", 2, "a value, not a condition"),
        ("a = (b = 1)", 5, "a value, not a condition"),
        ("a = NOT b", 5, "a value"),
        ("a IN ()", 7, "a value"),
        ("a IN (1 2)", 9, "',' or ')'"),
        ("a IN 1", 6, "'('"),
        ("a NOT = 1", 7, "IN or LIKE after NOT"),
        ("a IS 1", 6, "NULL or NOT NULL"),
        ("a IS NOT 1", 10, "NULL"),
        ("a + 1 IS NULL", 7, "only a property"),
        ("EXISTS a", 8, "'('"),
        ("EXISTS (1)", 9, "the name of a property"),
        ("EXISTS (a", 10, "')'"),
        ("set = 1", 1, "a value"),
        ("user.set = 1", 6, "the name of a property"),
        ("app.color = 1", 1, "the scope sys or user"),
        ("now() = 1", 1, "newid()"),
        ("newid(1) = 1", 7, "')'"),
        ("p(1 = 1) = 1", 5, "')'"),
        ("a = 9223372036854775808", 5, "Int64"),
        ("a = -9223372036854775809", 6, "Int64"),
        ("a = 1E999", 5, "Double"),
        ("a LIKE 1", 8, "a pattern in single quotes"),
        ("a LIKE 'x' ESCAPE 1", 19, "an ESCAPE of one character"),
        ("a LIKE 'x' ESCAPE 'ab'", 19, "an ESCAPE of one character"),
        ("a LIKE 'x!' ESCAPE '!'", 20, "a character after the ESCAPE"),
    ],
)
def test_an_invalid_filter_is_refused(text: str, column: int, expected: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter(text)
    assert caught.value.column == column
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "SET or REMOVE"),
        ("a = 1", 1, "SET or REMOVE"),
        ("SET a 1", 7, "'='"),
        ("SET a = 1 = 1", 11, "SET or REMOVE"),
        ("SET a = 1;; SET b = 1", 11, "SET or REMOVE"),
        ("SET a = (b = 1)", 9, "a value, not a condition"),
        ("SET a = b LIKE 'x'", 11, "SET or REMOVE"),
        ("REMOVE", 7, "the name of a property"),
        ("SET sys.SequenceNumber = 1", 5, "a system property that can be set"),
        ("REMOVE sys.Lable", 8, "a system property that can be set"),
        ("SET sys.TimeToLive = 'soon'", 22, "a timespan that sys.TimeToLive can hold"),
        ("SET sys.TimeToLive = 60", 22, "a timespan"),
        ("SET sys.TimeToLive = '50.00:00:00'", 22, "a timespan"),
        ("SET sys.ScheduledEnqueueTimeUtc = 'soon'", 35, "a timestamp"),
    ],
)
def test_an_invalid_action_is_refused(text: str, column: int, expected: str) -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_action(text)
    assert caught.value.column == column
    assert expected in caught.value.expected


def test_a_syntax_error_shows_the_line_and_a_mark() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter("color = 'red'\n\tAND size >")
    error = caught.value
    assert (error.line, error.column, error.seen) == (2, 12, "the end of the rule")
    assert error.caret == "    \tAND size >\n    \t          ^"
    assert "rule, line 2, column 12: got the end of the rule, expected a value" in str(error)
    assert error.problems[0].path == "rule, line 2, column 12"


def test_an_error_in_a_long_line_shows_only_the_text_around_it() -> None:
    with pytest.raises(RuleSyntaxError) as caught:
        parse_filter("a = 1 OR " * 50 + "? OR" + " a = 1" * 50)
    line, mark = caught.value.caret.splitlines()
    assert (line[4], line[-1]) == ("…", "…")
    assert line[mark.index("^")] == "?"


def test_a_keyword_used_as_a_name_gets_a_hint() -> None:
    with pytest.raises(RuleSyntaxError, match=r"\[SET\]"):
        parse_filter("user.set = 1")


def test_length_is_limited() -> None:
    longest = "a = '" + "x" * (MAX_CHARACTERS - 6) + "'"
    assert len(longest) == MAX_CHARACTERS
    parse_filter(longest)
    with pytest.raises(RuleSyntaxError, match="at most 1024 characters"):
        parse_filter(longest + " ")


def test_the_number_of_statements_is_limited() -> None:
    assert len(parse_action("SET a = 1;" * MAX_STATEMENTS).statements) == MAX_STATEMENTS
    with pytest.raises(RuleSyntaxError, match="at most 32 statements"):
        parse_action("SET a = 1;" * (MAX_STATEMENTS + 1))


@pytest.mark.parametrize(
    ("opening", "middle", "closing"),
    [("(", "a = 1", ")"), ("NOT ", "a = 1", ""), ("NOT (", "a = 1", ")"), ("", "", "-a = 1"), ("p(", "a", ") = 1")],
)
def test_nesting_is_limited_and_never_exhausts_the_stack(opening: str, middle: str, closing: str) -> None:
    with pytest.raises(RuleSyntaxError):
        parse_filter((opening * 500 + middle + closing * 500)[:MAX_CHARACTERS])


def test_nesting_up_to_the_limit_is_parsed() -> None:
    assert condition("(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING) == Comparison(a, "=", one)
    with pytest.raises(RuleSyntaxError, match="at most 32 levels"):
        parse_filter("-" * (MAX_NESTING + 1) + "a = 1")


def test_a_long_chain_of_operators_does_not_count_as_nesting() -> None:
    parse_filter("a" + "+a" * 500 + " = 1")
    text = " OR ".join(["a = 1"] * 110)
    assert str(parse_filter(text)) == text
