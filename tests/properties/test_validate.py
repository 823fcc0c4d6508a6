"""The validate editor agrees with its library, changes nothing, and quotes nothing from the body."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from shared.editors.options import FOLDER
from shared.editors.validate import ValidateStep
from shared.errors import MessageRejected
from shared.message.message import Message
from tests import messages
from tests.fakes import task_facts

MARK = "s3cr3t"
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "maxLength": 8, "pattern": "^[a-z]*$"},
        "amount": {"type": "number", "minimum": 0, "multipleOf": 0.5},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
        "next": {"$ref": "#"},
    },
    "required": ["id"],
    "additionalProperties": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
}

secrets = st.sampled_from(["", "x", "!", "y" * 9]).map(lambda text: MARK + text)
names = st.sampled_from(["id", "amount", "tags", "next"]) | secrets
scalars = st.none() | st.booleans() | st.integers(-5, 10**400) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text("abc", max_size=9) | secrets
bodies = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("config")
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    return ValidateStep.model_validate({"validate": {"schema": "schema.json"}}, context={FOLDER: folder}).editor(
        task_facts()
    )


def answer_of(editor: Any, message: Message) -> MessageRejected | None:
    """Return the rejection of a message, None if it is valid."""
    try:
        assert editor.edit(message) == (message,)
    except MessageRejected as error:
        return error
    return None


@given(body=bodies | st.dictionaries(names, scalars | texts | st.lists(texts, max_size=4)))
def test_validate_agrees_with_the_library_and_quotes_nothing(editor: Any, body: Any) -> None:
    message = messages.message(body=json.dumps(body).encode())
    before = message.encode()
    try:
        passes = Draft202012Validator(SCHEMA).is_valid(body)
    except OverflowError:
        passes = False
    answer = answer_of(editor, message)
    assert (answer is None) == passes
    assert MARK not in str(answer)
    assert message.encode() == before


@given(body=st.binary(max_size=40) | st.text(alphabet='{}[]",:1eE-.\\u truefalsn', max_size=40).map(str.encode))
def test_any_body_raises_only_message_rejected(editor: Any, body: Any) -> None:
    answer = answer_of(editor, messages.message(body=body))
    assert answer is None or answer.reason in {"NotJson", "SchemaViolated"}
