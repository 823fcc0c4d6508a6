"""The job and the writers agree on the record, though neither imports the other."""

import pytest

from busway_reconcile import settings
from busway_reconcile.journal import schema
from busway_reconcile.settings import Settings

pytest.importorskip("msgspec", reason="needs the packages of the app")
record = pytest.importorskip("shared.journal.record")
hold = pytest.importorskip("shared.line.deadline")

IN_JSON = {"tinyint": "int", "timestamp": "bigint"}


def test_a_message_is_in_flight_for_longer_than_a_batch_may_be_held() -> None:
    assert Settings().grace >= settings.LONGEST_HOLD > hold.LONGEST_HOLD


def test_the_job_reads_the_fields_that_the_writers_write() -> None:
    written = {field.name: IN_JSON.get(field.spark, field.spark) for field in record.FIELDS}
    read = {name: kind.simpleString() for name, kind in schema.FIELDS.items()}
    assert read == written
    assert record.VERSION == schema.VERSION
    assert set(schema.ALWAYS_THERE) == {field.name for field in record.FIELDS if not field.is_nullable} - {"v"}
    assert set(schema.TIMES) == {field.name for field in record.FIELDS if field.spark == "timestamp"}
