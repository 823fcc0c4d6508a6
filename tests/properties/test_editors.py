"""Editors with any message: they change only what they are configured to change, and lose no message."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.codecs.json import read_exact, write
from shared.editors.content.expression import Expression
from shared.editors.content.flattening import flatten
from shared.editors.python import OwnFunction, Python
from shared.errors import MessageRejected
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Withheld
from shared.testing import edited, message

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(10**40), 10**40) | st.decimals(allow_nan=False, allow_infinity=False)
documents: Any = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
expressions = st.sampled_from(
    [
        *("@", "a", "a.b[0]", "[*]", "*", "[]", "[?a]", "[].a | [0]", "{a: a, b: @}", "keys(@)", "values(@)"),
        *("sum([])", "sort(@)", "sort_by(@, &a)", "max(@)", "avg(@)", "to_number(@)", "to_string(@)", "type(@)"),
        *("flatten(@, '.')", "items(@)", "from_items(@)", "omit(@, ['a'])", "multiply(a, b)", "divide(a, b)"),
        *("round(@, `2`)", "ceil(@)", "floor(@)", "abs(@)", "reverse(@)", "length(@)", "a < b", "join('', @)"),
        *("not_null(a, b, @)", "merge(@, @)", "map(&a, @)", "min_by(@, &a)", "property('p')", "split(@, 'a')"),
    ]
)


@given(documents)
def test_written_documents_are_read_back_unchanged(document: Any) -> None:
    assert read_exact(write(document)) == document


@given(documents.filter(lambda document: document is not None))
def test_identity_expression_keeps_the_value(document: Any) -> None:
    sent = edited({"transform": {"expression": "@"}}, message(write(document))).message
    assert read_exact(sent.body or b"") == document


@given(st.binary(max_size=20) | documents.map(write), expressions)
def test_any_body_gives_a_result_or_a_rejection(body: Any, text: str) -> None:
    result = edited({"transform": {"expression": text, "on_null": "write"}}, message(body))
    assert [str(outcome) for outcome in result.outcomes] in (["sent"], ["rejected"])
    for sent in result.messages:
        read_exact(sent.body or b"")


@given(st.dictionaries(texts, documents, max_size=4))
def test_flattening_keeps_every_value(document: Any) -> None:
    try:
        flat = flatten(document, "/")
    except MessageRejected as error:
        assert error.reason == "NameTwice"  # noqa: PT017 - most documents have no name twice
        return
    if document:
        assert sorted(map(repr, flat.values())) == sorted(map(repr, _leaves(document)))
    else:
        assert flat == {}


@given(st.lists(st.integers(0, 6), max_size=6), st.data())
def test_the_python_editor_loses_no_message(choices: Any, data: st.DataObject) -> None:
    results = {
        0: lambda each: each,
        1: lambda each: [each, each.copy()],
        2: lambda _: None,
        3: lambda _: [],
        4: lambda _: 1 / 0,
        5: lambda _: data.draw(st.integers() | st.text()),
        6: lambda each: [each] * 3,
    }
    for choice in choices:
        received = message(b"x", message_id=data.draw(st.sampled_from(["a", None])))
        editor = Python(OwnFunction("own:edit", results[choice]), 1.0)
        try:
            left = editor.edit(received)
        except MessageRejected as error:
            assert error.reason == "EditorFailed"  # noqa: PT017 - the other outcomes are asserted below
            assert choice in (4, 5)
            continue
        if isinstance(left, Withheld):
            assert choice in (2, 3)
        else:
            assert len(left) == {0: 1, 1: 2, 6: 3}[choice]
            assert len({id(each) for each in left}) == len(left)


@given(documents)
def test_expression_keeps_no_state_between_messages(document: Any) -> None:
    expression = Expression("[@, property('p')]")
    first, second = message(properties={"p": 1}), Message(message().sections, Arrival(Origin("a", "b")))
    assert expression.of([document], first) == [[document], 1]
    assert expression.of([document], second) == [[document], None]


def _leaves(value: Any) -> Any:
    if isinstance(value, dict) and value:
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list) and value:
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]
