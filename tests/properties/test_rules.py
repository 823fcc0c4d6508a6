"""The text of any rule parses to the same rule, and any text is a rule or a syntax error."""

import string
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp import values
from shared.rules import RuleEvaluationError, RuleSyntaxError, SqlFilter, parse_action, parse_filter
from shared.rules.lexer import MAX_CHARACTERS
from shared.rules.properties import SYSTEM_PROPERTIES
from shared.rules.rule import Action
from shared.rules.syntax import (
    And,
    Chain,
    Comparison,
    Exists,
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
from tests.unit.rules.properties_in_memory import PropertiesInMemory

USER = ["color", "quantity", "price", "flag", "moment", "missing"]
SETTABLE = ["To", "subject", "Label", "TimeToLive", "ScheduledEnqueueTimeUtc"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
literals = st.one_of(
    st.just(Literal(values.NULL)),
    st.booleans().map(lambda payload: Literal(values.boolean(payload))),
    st.integers(-(2**63), 2**63 - 1).map(lambda payload: Literal(values.long(payload))),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda payload: Literal(values.double(payload))),
    texts.map(lambda payload: Literal(values.string(payload))),
)
user_properties = st.builds(Property, st.sampled_from(USER) | texts.filter(bool))
properties = user_properties | st.builds(
    Property, st.sampled_from([*SYSTEM_PROPERTIES, "Lable"]), st.just(Scope.SYSTEM)
)
parameters = st.builds(Parameter, st.text(string.ascii_letters + "_1ä", min_size=1, max_size=4))


def chains(expressions: Any) -> Any:
    def chain_of(operators: Any) -> Any:
        pairs = st.tuples(st.sampled_from(operators), expressions)
        return st.builds(Chain, expressions, st.lists(pairs, min_size=1, max_size=3).map(tuple))

    return chain_of("+-") | chain_of("*/%")


expressions = st.recursive(
    literals | properties | parameters | st.just(NewId()),
    lambda inner: chains(inner) | st.builds(Signed, st.sampled_from("+-"), inner) | st.builds(PropertyNamed, inner),
    max_leaves=6,
)
# Constant patterns are checked when the rule is parsed, which the unit tests cover.
patterns = st.builds(Literal, texts.map(values.string)) | properties
comparisons = st.one_of(
    st.builds(Comparison, expressions, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), expressions),
    st.builds(IsNull, properties, st.booleans()),
    st.builds(Exists, properties),
    st.builds(In, expressions, st.lists(expressions, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(Like, expressions, patterns, st.none(), st.booleans()),
    st.builds(Like, expressions, patterns, properties, st.booleans()),
)
conditions = st.recursive(
    comparisons,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=5,
)
targets = user_properties | st.builds(Property, st.sampled_from(SETTABLE), st.just(Scope.SYSTEM))
statements = st.one_of(
    st.builds(Set, user_properties, expressions), st.builds(Set, targets, properties), st.builds(Remove, targets)
)

messages = st.builds(
    PropertiesInMemory,
    color=texts.map(values.string) | st.just(values.NULL),
    quantity=st.integers(-3, 3).map(values.int_),
    price=st.floats(width=32).map(values.float32),
    flag=st.booleans().map(values.boolean),
    moment=st.integers(-(2**63), 2**63 - 1).map(values.timestamp),
)

# Text that is nearly a rule finds more faults than random text.
WORDS = """
    a b sys. user. Label To TimeToLive = <> != < >= ( ) , ; ' '' [ ] " 'x' 'a%' '0:2:0' 1 -1 2.5 1E5 + - * / % @p
    AND OR NOT IS NULL IN LIKE ESCAPE EXISTS TRUE SET REMOVE newid() p( property(
"""
words = st.sampled_from(WORDS.split())
near_rules = st.lists(words, max_size=20).map(" ".join)


def is_short_enough(node: Any) -> Any:
    return len(str(node)) <= MAX_CHARACTERS


@given(conditions.filter(is_short_enough))
def test_condition_round_trips(condition: Predicate) -> None:
    assert parse_filter(str(condition)) == SqlFilter(condition)


@given(st.lists(statements, min_size=1, max_size=4).map(tuple).map(Action).filter(is_short_enough))
def test_action_round_trips(action: Action) -> None:
    assert parse_action(str(action)) == action


@given(st.text(st.characters()) | near_rules)
def test_any_text_is_a_rule_or_a_syntax_error(text: str) -> None:
    for parse in (parse_filter, parse_action):
        rule, error = rule_or_error(parse, text)
        if error is None:
            assert not is_short_enough(rule) or parse(str(rule)) == rule
        else:
            assert error.line >= 1
            assert 1 <= error.column <= len(text) + 1
            str(error).encode()


def rule_or_error(parse: Any, text: str) -> Any:
    try:
        return parse(text), None
    except RuleSyntaxError as error:
        return None, error


@given(conditions, messages)
def test_any_condition_has_an_outcome_or_an_error_and_not_inverts_it(
    condition: Predicate, message: PropertiesInMemory
) -> None:
    parameters = {"a": values.long(1)}
    try:
        outcome = SqlFilter(condition).evaluate(message, parameters)
    except RuleEvaluationError:
        return
    assert outcome in (True, False, None)
    expected = None if outcome is None else not outcome
    if "newid" not in str(condition):
        assert SqlFilter(Not(condition)).evaluate(message, parameters) is expected


@given(st.lists(statements, min_size=1, max_size=4).map(tuple).map(Action), messages)
def test_any_action_ends_or_is_an_error(action: Action, message: PropertiesInMemory) -> None:
    try:
        action.apply(message, {"a": values.long(1)})
    except RuleEvaluationError:
        return
    time_to_live = message.system_values.get("TimeToLive")
    assert time_to_live is None or (time_to_live.kind == "uint" and isinstance(time_to_live.payload, int))
