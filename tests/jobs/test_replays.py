"""A replay in the journal of the product: a task of its own, and no finding about the messages that it sent again."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shared.amqp import map_section, sections
from shared.amqp.values import string
from shared.message.replay import REPLAY, replay_name
from tests.fakes import OutputThatAccepts
from tests.jobs.journals import write
from tests.jobs.results import run, verdicts
from tests.jobs.test_losses import Day

pytestmark = pytest.mark.slow

NAME = replay_name("copy", "20261123T080000Z")
LOST = 2


def marked(content: bytes, key: str) -> bytes:
    """Return a message as `busway replay` sends it through its task."""
    raw = sections.split(content)
    mark = {REPLAY: string(f"{NAME}/{key}")}
    raw.application_properties = map_section.edited(raw.application_properties, b"\x00\x53\x74", mark, string)
    return raw.encode()


def test_a_replay_is_counted_apart_and_a_copy_that_it_lost_is_found(spark: SparkSession, tmp_path: Path) -> None:
    day = Day()
    messages = [day.message(number, session_id="s") for number in range(1, 6)]
    for message in messages:
        day.deliver(message)
        day.clock.advance(60)
    day.clock.advance(600)
    for number, message in enumerate(messages):
        output = OutputThatAccepts()
        day.deliver(marked(message, str(number)), task=NAME, output=output, is_repair=True)
        if number != LOST:
            day.see([copy.content for copy in output.accepted["orders"]])
        day.clock.advance(120)
    write(tmp_path / "journal", day.sink.kept)
    result = run(spark, tmp_path)
    assert {task.task: task.verdicts for task in result.summary.tasks} == {
        "copy": {"delivered": 5},
        NAME: {"replayed": 4, "missing": 1},
    }
    assert verdicts(result)[NAME, LOST + 1] == "missing"
    assert result.summary.problems == []
