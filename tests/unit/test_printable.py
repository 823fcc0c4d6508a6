"""What a sender chooses neither acts on a terminal nor forges a line of a log."""

import asyncio
import json
import logging
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import MessageRejected, TargetRefused
from shared.journal.log import LogJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.printable import json_line, printable
from tests.fakes import OutputThatAccepts, clock_at_delivery, sleep_by
from tests.messages import ORIGIN, delivered

# Categories of controls, formats (which include directions of writing), and separators of lines and paragraphs.
ACTING = {"Cc", "Cf", "Zl", "Zp", "Cs"}
FORGED = "m\n2026-01-01 ERROR forged\r\x1b[2J\x9b2J\u2028\u0085\u202e"


def acts(text: str) -> bool:
    return bool(ACTING & {unicodedata.category(each) for each in text})


@given(st.text())
def test_line_of_json_is_the_same_document_and_acts_on_nothing(text: str) -> None:
    line = json_line({text: [text]})
    assert json.loads(line) == {text: [text]}
    assert not acts(line)
    assert not acts(printable(text))


class Refusing:
    """Rejects with a text that quotes what the sender has chosen."""

    name = "refusing"

    def edit(self, message: Message) -> list[Message]:
        identity = message.message_id
        raise MessageRejected("Bad", f"got {None if identity is None else identity.payload!s}")


@pytest.mark.parametrize("has_rejects", [True, False])
def test_id_of_a_message_forges_no_line_in_the_log(caplog: pytest.LogCaptureFixture, *, has_rejects: bool) -> None:
    caplog.set_level(logging.DEBUG)
    target = Target(OutputThatAccepts(), "east", "orders")
    rejects = target if has_rejects else None
    task = Task("copy", ORIGIN, [Refusing()], Router([Route(target)]), rejects, Keep(), None)
    clock = clock_at_delivery()
    line = Pipeline(task, LogJournal(), clock, sleep_by(clock))
    batch = [delivered(1, message_id=FORGED)]
    if has_rejects:
        asyncio.run(line.run(batch))
    else:
        with pytest.raises(TargetRefused):
            asyncio.run(line.run(batch))
    lines = [record.getMessage() for record in caplog.records]
    assert any("forged" in line for line in lines)
    assert not [line for line in lines if acts(line)]
