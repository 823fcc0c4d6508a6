"""Short runs of the fuzz for codecs, editors, rules and the broker; `make fuzz` runs it with new seeds."""

from tests.fuzz import editors, frames, tasks


def test_damaged_messages_are_read_or_rejected() -> None:
    verdicts = editors.run(18, cases=3000)
    assert verdicts["read"] > 100
    assert verdicts["rejected"] > 300


def test_damaged_messages_have_an_outcome_in_every_task() -> None:
    outcomes = tasks.run(18, cases=1000)
    assert outcomes["sent"] > 200
    assert outcomes["rejected"] > 200


def test_broker_answers_or_closes_whatever_the_frames_are() -> None:
    verdicts = frames.run(18, cases=200)
    assert verdicts["answered"] > 100
