"""An unexpected exception in an editor rejects the message that caused it, and never holds the batch."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import Field

from shared.editors.options import Step, Strict, TaskFacts
from shared.message.message import Message
from shared.protocols import Outcome
from shared.testing import Carried, edited, message

SECRET = "a text that must not be logged"


class DivideOptions(Strict):
    """The number to divide."""

    dividend: int


class DivideStep(Step):
    """A step with options whose editor has a bug."""

    options: DivideOptions = Field(alias="divide")

    def editor(self, _: TaskFacts, /) -> "Divide":
        """Return the editor with these options."""
        return Divide(self.options)


class Divide:
    """Divides by the body."""

    name = "divide"

    def __init__(self, options: DivideOptions) -> None:
        self._dividend = options.dividend

    def edit(self, each: Message) -> Sequence[Message]:
        """Return the message with the quotient."""
        each.body = str(self._dividend // int(each.body or b"")).encode()
        return [each]


DIVIDE = DivideStep.model_validate({"divide": {"dividend": 6}})


def run(*editors: Any) -> Carried:
    return edited(editors, message("1"), message("0"), message(SECRET), message("3"))


@pytest.mark.parametrize(
    "neighbours",
    [
        [],
        [{"deduplicate": {"by": "sys.SequenceNumber", "window": "PT1H", "store": "memory"}}],
        [{"compress": {"encoding": "gzip"}}],
    ],
    ids=["alone", "before-an-editor-of-batches", "before-another"],
)
def test_an_error_in_an_editor_rejects_only_its_message(neighbours: list[dict[str, object]]) -> None:
    result = run(DIVIDE, *neighbours)
    assert result.outcomes == [Outcome.SENT, Outcome.REJECTED, Outcome.REJECTED, Outcome.SENT]
    if not neighbours:
        assert [each.body for each in result.messages] == [b"6", b"2"]


def test_the_reason_names_the_editor_and_the_code_line_and_quotes_no_body(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        zero, text = run(DIVIDE).reasons
    place = "this is a bug in the editor"
    assert zero.startswith("ZeroDivisionError: divide: unexpected ZeroDivisionError in test_editor_faults.py, line ")
    assert text.startswith("ValueError: divide: unexpected ValueError in test_editor_faults.py, line ")
    assert zero.endswith(place)
    assert text.endswith(place)
    assert SECRET not in caplog.text
