from itertools import product

import pytest

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules import RuleEvaluationError, parse_filter
from shared.rules.value_types import timespan
from tests.unit.rules.properties_in_memory import PropertiesInMemory

T, F, U = True, False, None
# Three conditions of known outcome: a missing property makes a comparison unknown.
SPELLED = {T: "1 = 1", F: "1 = 0", U: "missing = 1"}
EMPTY = PropertiesInMemory()


def outcome(text: str, properties: PropertiesInMemory = EMPTY, **parameters: Value) -> bool | None:
    return parse_filter(text).evaluate(properties, parameters)


AND = {(T, T): T, (T, F): F, (T, U): U, (F, F): F, (F, U): F, (U, U): U}
OR = {(T, T): T, (T, F): T, (T, U): T, (F, F): F, (F, U): U, (U, U): U}


@pytest.mark.parametrize(("left", "right"), list(product([T, F, U], repeat=2)))
def test_and_and_or_follow_three_valued_logic(left: bool | None, right: bool | None) -> None:
    pair = (left, right) if (left, right) in AND else (right, left)
    assert outcome(f"{SPELLED[left]} AND {SPELLED[right]}") is AND[pair]
    assert outcome(f"{SPELLED[left]} OR {SPELLED[right]}") is OR[pair]


def test_not_of_unknown_is_unknown() -> None:
    assert [outcome(f"NOT {SPELLED[truth]}") for truth in (T, F, U)] == [F, T, U]


def test_unknown_does_not_match() -> None:
    assert parse_filter("missing = 1").matches(EMPTY) is False
    assert parse_filter("NOT missing = 1").matches(EMPTY) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # null is what a missing property is, to everything but EXISTS
        ("nothing IS NULL", T),
        ("nothing IS NOT NULL", F),
        ("missing IS NULL", T),
        ("number IS NOT NULL", T),
        ("EXISTS(nothing)", T),
        ("EXISTS(missing)", F),
        ("nothing = nothing", U),
        ("number = NULL", U),
        ("number <> NULL", U),
        ("nothing + 1 = 1", U),
        ("nothing IN (1)", U),
        ("nothing LIKE '%'", U),
        # comparisons
        ("number = 5", T),
        ("number <> 5", F),
        ("number != 6", T),
        ("number > 4 AND number >= 5 AND number < 6 AND number <= 5", T),
        ("5 = number", T),
        ("4 < number AND 6 > number AND 5 <= number", T),
        ("number > 4.5", T),
        ("number = 5.0", T),
        ("ratio > 0", T),
        ("ratio = 0.5", T),
        ("huge = 9007199254740992.0", T),
        ("huge = 9007199254740992", F),
        ("single = 0.1", F),
        ("single > 0", T),
        ("text = 'Red'", T),
        ("text = 'red'", F),
        ("text > 'Blue'", T),
        ("flag = TRUE", T),
        ("flag <> FALSE", T),
        ("flag > FALSE", U),
        ("TEXT = 'Red'", T),
        ("user.Text = 'Red'", T),
        ("[repl-sequence] = '7'", T),
        ("\"repl-sequence\" = '7'", T),
        # types that do not meet
        ("digits = 1", U),
        ("digits <> 1", U),
        ("NOT digits = 1", U),
        ("digits = '1'", T),
        ("flag = 1", U),
        ("text = TRUE", U),
        # IN
        ("number IN (1, 5)", T),
        ("number IN (1, 2)", F),
        ("number NOT IN (1, 2)", T),
        ("number NOT IN (1, 5)", F),
        ("number IN (1, missing, NULL, 'five')", F),
        ("number NOT IN (1, missing)", T),
        ("missing IN (1)", U),
        ("missing NOT IN (1)", U),
        ("text IN ('Red', 'Green')", T),
        ("number + 1 IN (6)", T),
        ("number IN ('5')", F),
        ("text IN ('Blue')", F),
        ("text NOT IN ('Blue')", T),
        ("text IN (1, text)", T),
        # LIKE
        ("text LIKE 'R%'", T),
        ("text LIKE '_ed'", T),
        ("text LIKE 'r%'", F),
        ("text NOT LIKE 'r%'", T),
        ("missing LIKE '%'", U),
        ("missing NOT LIKE '%'", U),
        ("text LIKE missing", U),
        ("text LIKE 'x' ESCAPE missing", U),
        ("number LIKE '5'", U),
        ("text LIKE nothing", U),
        ("text LIKE NULL", U),
        ("text LIKE '%' ESCAPE nothing", U),
        ("text LIKE pattern ESCAPE '!'", T),
        ("percent LIKE '100!%' ESCAPE '!'", T),
        ("text LIKE '100!%' ESCAPE '!'", F),
        ("text LIKE pattern", T),
        # system properties
        ("sys.Label = 'order'", T),
        ("sys.label LIKE '%der'", T),
        ("sys.Subject = 'order'", T),
        ("sys.To = 'x'", U),
        ("sys.To IS NULL", T),
        ("EXISTS(sys.To)", F),
        ("sys.EnqueuedTimeUtc = sys.EnqueuedTime", T),
        # functions
        ("property('text') = 'Red'", T),
        ("p('TE' + 'XT') = 'Red'", T),
        ("p(missing) = 'Red'", U),
        ("newid() = newid()", F),
        # arithmetic
        ("number * 2 + 1 = 11", T),
        ("number - 2 - 1 = 2", T),
        ("-number + 5 = 0", T),
        ("+number = 5", T),
        ("number / 2 = 2", T),
        ("-number / 2 = -2", T),
        ("-number % 2 = -1", T),
        ("number / 2.0 = 2.5", T),
        ("missing * 2 = 2", U),
        ("text + '!' = 'Red!'", T),
    ],
)
def test_conditions_have_their_documented_results(text: str, expected: bool | None) -> None:
    properties = PropertiesInMemory(
        system={"Subject": values.string("order"), "EnqueuedTimeUtc": values.timestamp(1000)},
        number=values.int_(5),
        ratio=values.double(0.5),
        text=values.string("Red"),
        digits=values.string("1"),
        huge=values.long(2**53 + 1),
        single=values.float32(0.10000000149011612),
        flag=values.boolean(True),
        nothing=values.NULL,
        percent=values.string("100%"),
        pattern=values.string("%e%"),
        **{"Repl-Sequence": values.string("7")},
    )
    assert outcome(text, properties) is expected


def test_parameters_are_found_in_any_case_with_and_without_the_at_sign() -> None:
    properties = PropertiesInMemory(source=values.string("orders"))
    assert outcome("source = @stringParam", properties, **{"@STRINGparam": values.string("orders")})
    assert outcome("source = @stringParam", properties, stringParam=values.string("orders"))
    with pytest.raises(RuleEvaluationError, match="@stringParam: unknown parameter"):
        outcome("source = @stringParam", properties)


def test_times_are_compared_with_parameters() -> None:
    properties = PropertiesInMemory(
        system={"TimeToLive": values.uint(120_000)}, start=values.timestamp(1_000), end=values.timestamp(61_000)
    )
    minute = timespan(60 * 10**7)
    assert outcome("(end - start) <= @timespan", properties, **{"@timespan": minute})
    assert outcome("end - start = @timespan AND start + @timespan = end", properties, timespan=minute)
    assert outcome("start < @dtParam", properties, dtParam=values.timestamp(1_001))
    assert outcome("sys.TimeToLive = @timespan + @timespan", properties, timespan=minute)
    assert outcome("sys.TimeToLive = 120000", properties) is None


def test_a_system_property_that_service_bus_lacks_is_an_error() -> None:
    for text in ("sys.Lable = 'x'", "sys.Lable IS NULL", "EXISTS(sys.Lable)"):
        with pytest.raises(RuleEvaluationError, match=r"sys\.Lable: unknown system property"):
            outcome(text)
    assert outcome("1 = 0 AND sys.Lable = 'x'") is False


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("number / 0 = 1", "division by zero"),
        ("number % zero = 1", "division by zero"),
        ("text - 1 = 1", "got string - long, expected two numbers"),
        ("text + 1 = 1", "got string"),
        ("-text = 1", "got int - string"),
        ("number * 9223372036854775807 = 1", "exceed its type"),
        ("p(number) = 1", "expected a string"),
        ("text LIKE number", "expected a string"),
        ("text LIKE text ESCAPE text", "ESCAPE of one character"),
    ],
)
def test_type_faults_are_errors_that_show_no_value(text: str, message: str) -> None:
    properties = PropertiesInMemory(number=values.long(5), zero=values.int_(0), text=values.string("secret"))
    with pytest.raises(RuleEvaluationError, match=message) as caught:
        outcome(text, properties)
    assert "secret" not in str(caught.value)
    assert caught.value.reason == "RuleEvaluationError"
