"""
A day's journals reconciled: what was planted is found, and how long that takes beside DuckDB's join of the same files.

The journals are made compacted, by DuckDB: what is measured is a night's work, and apart from it what compaction adds
to the records. Every ten-thousandth message has one of ten faults. Both engines have the same two cores.
"""

import argparse
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import duckdb

from benchmarks.measurement import Measurement, report
from tests.jobs import twin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 11, 20, tzinfo=UTC)
TASK = "orders-west-to-east"
KINDS = (
    "missing", "altered", "duplicated", "out_of_order", "late", "orphan", "looped", "filtered", "rejected", "stopped",
)  # fmt: skip
EVERY = 10_000  # messages, one of which has each fault
HOURS = 24
MILLION = 1_000_000
HOT_SHARE = 30  # percent of all messages, in one session

_MESSAGES = """
create or replace macro messages(low, high) as table
select i, i as src_seq,
       -- The last hour is quiet, so that all that was sent late or twice is of this day.
       {start} + (i * {step})::bigint as enqueued,
       case when i % {every} >= 500 and (i % {every} - 500) % 1000 = 0
            then ['missing', 'altered', 'duplicated', 'out_of_order', 'late', 'orphan', 'looped', 'filtered',
                  'rejected', 'stopped'][(i % {every} - 500) // 1000 + 1] else 'delivered' end as kind,
       'order-' || lpad(i::varchar, 12, '0') as message_id,
       md5(i::varchar) as body_digest,
       (hash(i) >> 1)::bigint as said,
       case when i % {every} in (3500, 3501) then 'pair-' || (i - i % {every})
            when i % {every} = 4500 then null
            when hash(i + 7) % 100 < {hot} then 'hot'
            when hash(i + 3) % 10 < 8 then 'customer-' || (hash(i + 5) % {sessions}) end as order_key
from range(low, high) numbers(i)
"""

_SOURCE = """
select i, enqueued + 300000 as written, 'source' as role, 'received' as outcome, enqueued, message_id, order_key,
       body_digest, said as "check", said as entry_check, null as target, null as send_ordinal, i // 100 as batch_id,
       case when kind = 'looped' then ['west', 'east', 'west'] else ['west'] end as hops
from messages({low}, {high}) where kind <> 'orphan'
union all
select i, enqueued + 600300000, 'source', 'received', enqueued, message_id, order_key, body_digest, said, said, null,
       null, 1000000000 + i, ['west']
from messages({low}, {high}) where kind = 'duplicated'
"""

_TARGET = """
select i, enqueued + 340000 + case kind when 'late' then 1500000000 when 'out_of_order' then 60000000 else 0 end
         as written, 'target' as role,
       case kind when 'filtered' then 'filtered' when 'rejected' then 'rejected' when 'stopped' then 'looped'
                 else 'sent' end as outcome,
       case when kind <> 'orphan' then enqueued end as enqueued, message_id, order_key, null as body_digest,
       case when kind in ('filtered', 'rejected', 'stopped') then null when kind = 'altered' then said + 1 else said end
         as "check",
       case when kind = 'altered' then said + 1 else said end as entry_check,
       case when kind <> 'filtered' then 'east/orders' end as target, i % 100 as send_ordinal, i // 100 as batch_id,
       null as hops
from messages({low}, {high}) where kind <> 'missing'
union all
select i, enqueued + 600340000, 'target', 'sent', enqueued, message_id, order_key, null, said, said, 'east/orders', 0,
       1000000000 + i, null
from messages({low}, {high}) where kind = 'duplicated'
"""

_RECORD = """
copy (
    select 1 as v, '{task}' as task, role, 'task' as observer, null::varchar as tap, null::boolean as peek,
           'wn1-1795132800000' as instance, batch_id::bigint as batch_id,
           make_timestamptz(written) as journal_time, outcome, 'west' as src_site,
           'orders/Subscriptions/replication' as src_entity, 0::smallint as src_part, i::bigint as src_seq,
           make_timestamptz(enqueued) as enqueued_time, null::integer as part, null::integer as parts,
           null::integer as attempt, null::timestamptz as expires_at, message_id, order_key,
           body_digest::varchar as body_digest, case when role = 'source' then 1024 end as body_size,
           case when role = 'source' then (body_digest::varchar)[:16] end as property_digest,
           "check"::bigint as "check",
           null::boolean as edited, hops::varchar[] as hops, target::varchar as target,
           send_ordinal::integer as send_ordinal, null::boolean as remembered, null::boolean as joined,
           null::varchar as stage, null::varchar as reason, null::varchar as given_up_by, null::smallint as tgt_part,
           null::bigint as tgt_seq, null::timestamptz as tgt_enqueued_time, entry_check::bigint as entry_check
    from ({rows}) where written >= {begin} and written < {end}
) to '{file}' (format parquet, compression zstd, row_group_size 250000)
"""


def make(folder: Path, pairs: int, *, hot: int = 0) -> None:
    """Write the compacted records of *pairs* messages and their outcomes below *folder*."""
    database = duckdb.connect()
    database.execute("set threads = 2; set TimeZone = 'UTC'")
    start, hour = round(START.timestamp() * MILLION), 3600 * MILLION
    step = (HOURS - 1) * hour / pairs
    sessions = max(pairs // 200, 1)
    database.execute(_MESSAGES.format(start=start, step=step, every=EVERY, hot=hot, sessions=sessions))
    for number in range(HOURS):
        landed = START + timedelta(hours=number)
        into = folder / "records" / f"landed={landed:%Y-%m-%dT%H}"
        into.mkdir(parents=True)
        begin, end = start + number * hour, start + (number + 1) * hour
        # What is written in this hour was enqueued in it or up to half an hour before.
        low = max(int((begin - hour / 2 - start) / step), 0)
        high = min(int((end - start) / step) + 1, pairs)
        for role, rows in (("source", _SOURCE), ("target", _TARGET)):
            database.execute(
                _RECORD.format(
                    task=TASK, begin=begin, end=end, rows=rows.format(low=low, high=high), file=into / f"{role}.parquet"
                )
            )


def spark_run(folder: Path, memory: str) -> dict[str, float]:
    """Index and reconcile in a process of its own, whose memory is its own too."""
    return _apart("--spark", str(folder), "--memory", memory)


def _apart(*arguments: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.reconcile", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603 - our own module
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _spark(folder: Path, memory: str) -> None:
    from jobs.reconcile.compact.hours import adopt  # noqa: PLC0415 - the parent process needs no Spark
    from jobs.reconcile.reconciliation import reconcile  # noqa: PLC0415
    from jobs.reconcile.session import local_session  # noqa: PLC0415
    from jobs.reconcile.settings import Settings, Window  # noqa: PLC0415

    started = time.monotonic()
    spark = local_session(memory=memory, scratch=folder / "scratch")
    session = time.monotonic() - started
    hours = [f"{START + timedelta(hours=number):%Y-%m-%dT%H}" for number in range(HOURS)]
    started = time.monotonic()
    if not (folder / "compacted" / "hours").exists():
        adopt(spark, str(folder / "compacted"), hours, now=START + timedelta(days=2))
    indexed = time.monotonic() - started
    (folder / "journal").mkdir(exist_ok=True)
    busy = _cpu_seconds(spark)
    started = time.monotonic()
    result = reconcile(
        spark, str(folder / "journal"), str(folder), window=Window.of_day(START.date()),
        now=START + timedelta(days=2), settings=Settings(grace=timedelta(hours=1)),
    )  # fmt: skip
    wall = time.monotonic() - started
    busy = _cpu_seconds(spark) - busy
    counts = {f"count_{name}": count for name, count in result.summary.counts.items()}
    spark.stop()
    print(json.dumps({"session": session, "index": indexed, "wall": wall, "cpu": busy, **counts}))


def _cpu_seconds(spark: "SparkSession") -> float:
    """Return the processor time that the Java process of *spark* has used, where the system has it in /proc."""
    # PySpark keeps the process that it started for itself.
    stat = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/stat")  # type: ignore[union-attr]  # noqa: SLF001
    if not stat.exists():
        return math.nan
    user, system = stat.read_text(encoding="ascii").rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def duckdb_run(folder: Path) -> dict[str, float]:
    """Join all in DuckDB, in a process of its own, write the findings as the job does, and count the verdicts."""
    return _apart("--duckdb", str(folder))


def _duckdb(folder: Path) -> None:
    database = twin.connect()
    started = time.monotonic()
    twin.judge(database, compacted=folder / "compacted" / "records", end=START + timedelta(days=1))
    database.execute(f"copy (from verdicts where verdict <> 'delivered') to '{folder}/twin.parquet' (format parquet)")
    wall = time.monotonic() - started
    rows = database.execute("select verdict, count(*) from verdicts group by all").fetchall()
    used = resource.getrusage(resource.RUSAGE_SELF)
    counts = {f"count_{name}": count for name, count in rows}
    print(json.dumps({"wall": wall, "cpu": used.ru_utime + used.ru_stime, **counts}))


def differences(found: dict[str, float], pairs: int) -> int:
    """Return how many messages have not the verdict that was planted."""
    planted = {f"count_{kind}": pairs // EVERY for kind in KINDS}
    planted["count_delivered"] = pairs - sum(planted.values())
    names = {name for name in (*found, *planted) if name.startswith("count_")}
    return round(sum(abs(found.get(name, 0) - planted.get(name, 0)) for name in names))


def measure(
    scratch: Path, millions: int, *, memory: str = "4g", hot: int = 0, twin_too: bool = True
) -> dict[str, float]:
    """Make, index, reconcile; return the seconds of each step, those of DuckDB as `twin`."""
    folder = scratch / f"{millions}-{hot}"
    shutil.rmtree(folder, ignore_errors=True)
    made = time.monotonic()
    make(folder / "compacted", millions * MILLION, hot=hot)
    made = time.monotonic() - made
    # Before and after, so that a busy moment of the machine does not decide.
    oracles = [duckdb_run(folder)] if twin_too else []
    found = spark_run(folder, memory)
    oracles += [duckdb_run(folder)] if twin_too else []
    found["made"] = made
    found["wrong"] = differences(found, millions * MILLION)
    if oracles:
        found["twin_wrong"] = sum(differences(oracle, millions * MILLION) for oracle in oracles)
        found |= {f"twin{name}": fmean(each[of] for each in oracles) for name, of in (("", "wall"), ("_cpu", "cpu"))}
    return found


def main() -> None:
    """Measure and report."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--spark", type=Path)
    arguments.add_argument("--duckdb", type=Path)
    arguments.add_argument("--memory", default="4g")
    arguments.add_argument("--full", action="store_true")
    options = arguments.parse_args()
    if options.spark is not None:
        _spark(options.spark, options.memory)
        return
    if options.duckdb is not None:
        _duckdb(options.duckdb)
        return
    with tempfile.TemporaryDirectory(prefix="busway-reconcile-") as name:
        for figures in full(Path(name)) if options.full else [short(Path(name))]:
            report(figures)
            sys.stdout.flush()


def short(scratch: Path) -> list[Measurement]:
    """Return the figures of a million pairs."""
    one = measure(scratch, 1)
    return [
        Measurement("reconciling 1 million pairs", one["wall"], "s"),
        Measurement("same, DuckDB's join", one["twin"], "s"),
        Measurement("same, adding to the records (compaction)", one["index"], "s"),
        Measurement("same, starting Spark", one["session"], "s"),
        Measurement("same, verdicts that were not planted", one["wrong"] + one["twin_wrong"], "messages", 0),
    ]


def full(scratch: Path) -> Iterator[list[Measurement]]:
    """Yield the figures of 5 and 20 million pairs as they come, and what 100 million would take by arithmetic."""
    five = measure(scratch, 5)
    shutil.rmtree(scratch / "5-0")
    yield _figures(5, five)
    twenty = measure(scratch, 20)
    growth = Measurement("growth from 5 to 20 million", twenty["wall"] / five["wall"], "times", 4)
    per_million = (twenty["wall"] - five["wall"]) / 15
    yield [*_figures(20, twenty), growth]
    yield [Measurement("100 million pairs, by arithmetic", twenty["wall"] + 80 * per_million, "s")]
    small = spark_run(scratch / "20-0", "1g")
    shutil.rmtree(scratch / "20-0")
    wrong = differences(small, 20 * MILLION)
    yield [
        Measurement("20 million pairs with 1 GB", small["wall"], "s"),
        Measurement("same, verdicts that were not planted", wrong, "messages", 0),
    ]
    hot = measure(scratch, 20, hot=HOT_SHARE, twin_too=False)
    both, usual = hot["wall"] + hot["index"], twenty["wall"] + twenty["index"]
    yield [
        Measurement("20 million pairs, 30 % of them in one session", both / usual, "times", 1.5),
        Measurement("same, verdicts that were not planted", hot["wrong"], "messages", 0),
    ]


def _figures(millions: int, found: dict[str, float]) -> list[Measurement]:
    # With few messages it is planning that takes the time, and there is no bar.
    bar = 1.5 if millions >= 20 else None  # noqa: PLR2004 - the number of the bar
    return [
        Measurement(f"reconciling {millions} million pairs", found["wall"], "s"),
        Measurement("same, DuckDB's join", found["twin"], "s"),
        Measurement("same, in times of DuckDB", found["wall"] / found["twin"], "times", bar),
        Measurement("same, processor time of the job", found["cpu"], "s"),
        Measurement("same, processor time of DuckDB", found["twin_cpu"], "s"),
        Measurement("same, adding to the records (compaction)", found["index"], "s"),
        Measurement("same, verdicts that were not planted", found["wrong"] + found["twin_wrong"], "messages", 0),
    ]


if __name__ == "__main__":
    main()
