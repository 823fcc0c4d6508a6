"""Invalid and refused messages: which go to `rejects`, and which stay at the source."""

from datetime import timedelta

import pytest

from shared.amqp.sections import Sections, data
from shared.amqp.values import string
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.rejection import DESCRIPTION, REASON, SEQUENCE, SOURCE, STAGE, TASK, WRAPPED_CONTENT_TYPE
from shared.protocols import Outcome, Outgoing
from tests.fakes import (
    OutputThatAccepts,
    OutputThatRejects,
)
from tests.messages import delivered
from tests.unit.line.copying import Line, texts

MALFORMED = b"\x00\x53\x74\xc1\xff\x02"


def test_a_malformed_message_goes_to_rejects_wrapped() -> None:
    line = Line()
    assert line.run(MALFORMED) == {Outcome.REJECTED: 1}
    (message,) = line.rejected()
    assert message.body == MALFORMED
    assert message.content_type == WRAPPED_CONTENT_TYPE
    assert texts(message)[REASON] == "MalformedMessage"
    assert texts(message)[TASK] == "copy"


def test_a_malformed_section_of_any_kind_rejects_the_message() -> None:
    bad_map = b"\xc1\x05\x04\xa1\x01a\x41"  # two pairs announced, one and a half there
    for sections in (
        Sections(header=b"\x00\x53\x70\xc0\x02\x01\x70"),
        Sections(message_annotations=b"\x00\x53\x72" + bad_map),
        Sections(properties=b"\x00\x53\x73\xc0\x03\x05\x40\x40"),
        Sections(application_properties=b"\x00\x53\x74\xc1\x04\x01\xa1\x01a"),
        Sections(properties=b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff"),
    ):
        sections.body = data(b"x")
        line = Line()
        assert line.run(sections.encode(), delivered(2)) == {Outcome.REJECTED: 1, Outcome.SENT: 1}, sections
        assert len(line.rejected()) == 1


def test_a_message_that_its_target_refuses_goes_to_rejects_unchanged() -> None:
    output = OutputThatRejects(lambda message: message.message_id == "m-2")
    line = Line(output)
    line.run(delivered(1), delivered(2, named={"colour": string("red")}, body=b"two"), delivered(3))
    assert output.ids("orders") == ["m-1", "m-3"]
    (message,) = line.rejected()
    assert message.body == b"two"
    assert texts(message) == {
        "colour": "red",
        REASON: "TargetRefusedMessage",
        DESCRIPTION: "target/entity: no",
        STAGE: "sent",
        TASK: "copy",
        SOURCE: "west/orders",
        SEQUENCE: "2",
    }
    assert line.journal.records[1].target == "west/rejected"


def test_message_that_rejects_refuses_is_sent_there_wrapped() -> None:
    rejects = OutputThatRejects(lambda message: message.message_id == "m-1")
    line = Line(OutputThatRejects(lambda _: True), rejects=rejects)
    content = delivered(1)
    assert line.run(content) == {Outcome.REJECTED: 1}
    (message,) = line.rejected()
    assert message.body == content
    assert message.content_type == WRAPPED_CONTENT_TYPE


def test_message_that_rejects_refuses_in_any_form_stays_at_the_source() -> None:
    line = Line(OutputThatRejects(lambda _: True), rejects=OutputThatRejects(lambda _: True))
    with pytest.raises(TargetRefused, match="west/rejected"):
        line.run(delivered(1))
    assert line.outcomes() == [Outcome.RETRY]


class RejectsOneAndGoesAway(OutputThatAccepts):
    def answer(self, message: Outgoing, /) -> BuswayError | None:
        return {
            "m-1": MessageRejected("Poison", "no"),
            "m-2": None,
            "m-3": TargetUnavailable("away", retry_after=timedelta(hours=1)),
        }[str(message.message_id)]


def test_rejected_messages_reach_rejects_even_if_the_target_is_unavailable_until_the_deadline() -> None:
    output = RejectsOneAndGoesAway()
    line = Line(output)
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2), delivered(3))
    assert line.outcomes() == [Outcome.REJECTED, Outcome.SENT, Outcome.RETRY]
    assert len(line.rejected()) == 1


def test_no_error_of_the_pipeline_quotes_a_body() -> None:
    line = Line(OutputThatRejects(lambda _: True), has_rejects=False)
    with pytest.raises(TargetRefused) as caught:
        line.run(delivered(1, body=b"secret", named={"key": string("secret")}))
    assert "secret" not in str(caught.value)
