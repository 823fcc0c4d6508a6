"""Records of taps without the source's number, among all columns that the job keeps of a record."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from busway_reconcile.compact.tap_matching import match_taps
from busway_reconcile.journal import schema
from busway_reconcile.judge.selection import RECORD
from tests.jobs.journals import ENTITY, START, TARGET, TASK

pytestmark = pytest.mark.slow

_KINDS = {field.name: field for field in schema.compacted()}
_BOOLEAN, _STRING = ("doubted", "found", "refuted"), ("known", "known_since")
_SCHEMA = StructType(
    [_KINDS.get(name, StructField(name, BooleanType() if name in _BOOLEAN else StringType())) for name in RECORD]
)


def of(role: str, *, enqueued: datetime = START, **fields: Any) -> dict[str, Any]:
    return {
        "task": TASK, "role": role, "instance": "one", "batch_id": 1, "journal_time": enqueued, "src_site": "west",
        "src_entity": ENTITY, "enqueued_time": enqueued, "known": "window", "doubted": False, "found": False,
        "refuted": False, **fields,
    }  # fmt: skip


def test_a_record_is_matched_or_stays_as_it_is(spark: SparkSession) -> None:
    at_hub: dict[str, Any] = {
        "observer": "tap",
        "tap": "watch-target",
        "outcome": "seen",
        "target": TARGET,
        "tgt_part": 0,
    }
    at_topic: dict[str, Any] = {"observer": "tap", "tap": "watch-source", "outcome": "seen", "tgt_part": 0}
    records = [
        of("source", observer="task", outcome="received", src_part=3, src_seq=7, message_id="a"),
        of("target", **at_hub, src_seq=7, tgt_seq=70, message_id="a"),
        of("target", **at_hub, src_seq=8, tgt_seq=80, message_id="b", found=True),
        of("source", **at_topic, tgt_seq=71, message_id="a", enqueued=START + timedelta(seconds=1)),
        of("source", **at_topic, tgt_seq=81, message_id="b", known="open"),
    ]
    frame = spark.createDataFrame([tuple(record.get(name) for name in RECORD) for record in records], _SCHEMA)
    assert set(_BOOLEAN + _STRING) == set(RECORD) - set(schema.COMPACTED)
    matched = match_taps(frame)
    assert matched.columns == list(RECORD)
    found = {(row["observer"], row["tgt_seq"]): row for row in matched.collect()}
    assert {key: (row["src_part"], row["src_seq"]) for key, row in found.items()} == {
        ("task", None): (3, 7),
        ("tap", 70): (3, 7),
        ("tap", 80): (None, 8),
        ("tap", 71): (3, 7),
        ("tap", 81): (None, None),
    }
    assert found["tap", 71]["enqueued_time"] == found["task", None]["enqueued_time"]
    assert found["tap", 80]["found"]
    assert found["tap", 81]["known"] == "open"
