"""The job and the writers agree about the record, though neither imports the other."""

import pytest

from jobs.reconcile import schema

record = pytest.importorskip("shared.journal.record")

IN_JSON = {"tinyint": "int", "timestamp": "bigint"}


def test_the_job_reads_the_fields_that_the_writers_write():
    written = {field.name: IN_JSON.get(field.spark, field.spark) for field in record.FIELDS}
    read = {name: kind.simpleString() for name, kind in schema.FIELDS.items()}
    assert read == written
    assert record.VERSION == schema.VERSION
    assert set(schema.ALWAYS_THERE) == {field.name for field in record.FIELDS if not field.is_nullable} - {"v"}
    assert set(schema.TIMES) == {field.name for field in record.FIELDS if field.spark == "timestamp"}
