"""
The manifest of missing and of expired messages: what `busway repair` needs to find and recognise a copy of each.

Shape: JSON lines. The first describes the manifest, each other one a message. Times are microseconds since 1970 UTC,
       digests are those of the journal. `arrived` lists the targets that have a copy. `places` lists where a copy may
       still be: the `dead-letters` of the source, a `hub` until its retention ends, and the entity of each `tap` that
       saw it, with the number there.
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal.frames import join_null_safe
from busway_reconcile.storage import Storage
from busway_reconcile.summary import Summary

MANIFEST = "repair.jsonl"
VERSION = 2
"""Version 1 had no expired messages: a `busway repair` that only knows it would send them without being asked."""

REPAIRABLE = ("missing", "expired-unsent")
"""The verdicts of the messages in a manifest."""

MAX_MESSAGES = 200_000
"""The largest number of messages in a manifest; the table `findings` has all of them."""

_DEAD_LETTERS = "/$DeadLetterQueue"
_MICROS = ("enqueued_time", "expires_at")


def write_manifest(spark: SparkSession, summary: Summary, out: str) -> str:
    """Write the manifest of a run into its folder below *out* and return its address."""
    storage = Storage(spark)
    folder = f"{storage.absolute(out)}/runs/{summary.run}"
    findings = spark.read.parquet(f"{folder}/findings").where(F.col("verdict").isin(*REPAIRABLE))
    missing = findings.withColumns({name: F.unix_micros(name) for name in _MICROS})
    keys = ("task", "src_site", "src_entity", "src_part", "src_seq", "stray", "enqueued_time")
    # The digests of the message as it entered, by the task or by a tap at the source.
    latest = F.max(F.struct("journal_time", "body_digest", "property_digest"))
    view = F.when(F.col("observer") == "tap", F.struct("tap", "tgt_part", "tgt_seq"))
    entries = (
        spark.read.parquet(f"{folder}/evidence")
        .where("role = 'source' and body_digest is not null")
        .withColumn("enqueued_time", F.col("generation"))
        .groupBy(*keys)
        .agg(latest.alias("latest"), F.sort_array(F.collect_set(view)).alias("seen"))
        .select(*keys, "latest.body_digest", "latest.property_digest", "seen")
    )
    columns = (
        "task", "src_site", "src_entity", "src_part", "src_seq", "message_id", "order_key", "meant_for", "copies",
        "expected", "arrived_targets", "last_reason", "verdict", *_MICROS, "body_digest", "property_digest", "seen",
    )  # fmt: skip
    with_entries = join_null_safe(missing, entries, keys, "left").select(*columns)
    rows = with_entries.orderBy("task", "src_part", "src_seq").limit(MAX_MESSAGES).collect()
    count = sum(summary.counts.get(verdict, 0) for verdict in REPAIRABLE)
    head = {"manifest": VERSION, "run": summary.run, "messages": len(rows), "missing": count}
    lines = [head, *(_with_places(row.asDict(recursive=True)) for row in rows)]
    storage.write(f"{folder}/{MANIFEST}", "".join(f"{_line(line)}\n" for line in lines))
    return f"{folder}/{MANIFEST}"


def _with_places(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in row.items() if name not in {"seen", "arrived_targets"}}
    # Only a message with several targets is missing where it has arrived elsewhere.
    return found | {"arrived": row["arrived_targets"] or None, "places": places(row)}


def places(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return where a copy of a missing message may still be, by its journal."""
    entity, part = f"{row['src_site']}/{row['src_entity']}", row["src_part"]
    found: list[dict[str, Any]] = []
    is_subscription, is_dead = "/Subscriptions/" in entity, entity.endswith(_DEAD_LETTERS)
    # The journal does not distinguish a queue from the first partition of a hub: both are part 0.
    if not part and not is_dead:
        found.append({"in": "dead-letters", "entity": entity + _DEAD_LETTERS})
    if part is not None and not is_subscription and not is_dead:
        found.append({"in": "hub", "entity": entity, "partition": part})
    for seen in row["seen"] or ():
        place = {"in": "tap", "tap": seen["tap"], "partition": seen["tgt_part"], "number": seen["tgt_seq"]}
        found.append({name: value for name, value in place.items() if value is not None})
    return found


def _line(values: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False)
