"""A short run of the fuzz for codecs, editors and rules; `make fuzz` runs it with new seeds."""

from tests.fuzz import editors


def test_damaged_messages_are_read_or_rejected() -> None:
    verdicts = editors.run(18, cases=3000)
    assert verdicts["read"] > 100
    assert verdicts["rejected"] > 300
