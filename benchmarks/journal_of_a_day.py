"""
The journals of a day as their writer leaves them: JSON lines, a gzip member for each flush, with planted faults.

Every ten-thousandth message has one of ten faults. DuckDB makes the lines, the writer's own function compresses them.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path

import duckdb

from shared.journal.lines import compressed

START = datetime(2026, 11, 20, tzinfo=UTC)
TASK = "orders-west-to-east"
KINDS = (
    "missing", "altered", "duplicated", "out_of_order", "late", "orphan", "looped", "filtered", "rejected", "stopped",
)  # fmt: skip
EVERY = 10_000  # messages, one of which has each fault
HOURS = 24
MILLION = 1_000_000
_CORES = 2

# The messages of a batch are flushed together, when the last of them is there.
_BATCH = 100
_LONGEST_FLUSH = 60  # seconds

_MESSAGES = """
create or replace macro messages(low, high) as table
select i,
       -- The last hour is quiet, so that all that was sent late or twice is of this day.
       {start} + (i * {step})::bigint as enqueued,
       i // {batch} as batch, i % {batch} as ordinal, {start} + ((batch + 1) * {batch} * {step})::bigint as flushed,
       case when i % {every} >= 500 and (i % {every} - 500) % 1000 = 0
            then ['missing', 'altered', 'duplicated', 'out_of_order', 'late', 'orphan', 'looped', 'filtered',
                  'rejected', 'stopped'][(i % {every} - 500) // 1000 + 1] else 'delivered' end as kind,
       hash(i) as body, hash(i + 1000000000000) as rest, hash(i + 2000000000000) as properties,
       case when i % {every} in (3500, 3501) then 'pair-' || (i - i % {every})
            when i % {every} = 4500 then null
            when hash(i + 7) % 100 < {hot} then 'hot'
            when hash(i + 3) % 10 < 8 then 'customer-' || (hash(i + 5) % {sessions}) end as order_key
from range(low, high) numbers(i)
"""

_LINES = {
    "source": """
select written, i, format(
    '{{{{"src_seq":{{}},"enqueued_time":{{}},"body_digest":"{{:016x}}{{:016x}}","property_digest":"{{:016x}}",'
    '"body_size":1024,"message_id":"order-{{:012d}}",{{}}"hops":{{}},{{}}"outcome":"received",{constants}}}}}',
    i, enqueued, body, rest, properties, i, coalesce('"order_key":"' || order_key || '",', ''),
    case kind when 'looped' then '["west","east","west"]' when 'stopped' then '["east","west"]' else '["west"]' end,
    case when again then '"attempt":2,' else '' end, batch, written) as line
from (
    select *, flushed + 300000 as written, false as again from messages({low}, {high}) where kind <> 'orphan'
    union all
    select * replace (1000000000 + i as batch), flushed + 600300000, true
    from messages({low}, {high}) where kind = 'duplicated'
)
""",
    "target": """
select written, i, format(
    '{{{{"src_seq":{{}},"send_ordinal":{{}},{{}}"outcome":"{{}}",{{}}{constants}}}}}',
    i, ordinal, case when outcome = 'sent' then format('"check":"{{:016x}}",', "check") else '' end, outcome,
    case when outcome = 'filtered' then '"stage":"routed","reason":"no route",' else '"target":"east/orders",' end,
    batch, written) as line
from (
    select *, flushed + 340000 + case kind when 'late' then 1500000000 when 'out_of_order' then 60000000 else 0 end
             as written,
           case kind when 'filtered' then 'filtered' when 'rejected' then 'rejected' when 'stopped' then 'looped'
                     else 'sent' end as outcome,
           xor(xor(body, properties), case kind when 'altered' then 1 else 0 end::ubigint) as "check"
    from messages({low}, {high}) where kind <> 'missing'
    union all
    select * replace (1000000000 + i as batch), flushed + 600340000, 'sent', xor(body, properties)
    from messages({low}, {high}) where kind = 'duplicated'
)
""",
}

_CONSTANTS = (
    f'"v":1,"task":"{TASK}","role":"{{role}}","observer":"task","src_site":"west",'
    '"src_entity":"orders/Subscriptions/replication","src_part":0,"batch_id":{{}},'
    '"instance":"0a1b2c3d4e5f6071-1795132800000","journal_time":{{}}'
)

_COPY = """
copy (select line from ({lines}) where written >= {begin} and written < {end} order by written, i)
to '{file}' (format csv, header false, quote '', escape '', delimiter '\x01')
"""


def make(folder: Path, pairs: int, *, hot: int = 0, hours: int = HOURS) -> None:
    """Write the journal of *pairs* messages and their outcomes below *folder*; *hot* percent are of one session."""
    database = duckdb.connect()
    database.execute(f"set threads = {_CORES}")
    start, hour = round(START.timestamp() * MILLION), 3600 * MILLION
    step = max(hours - 1, 0.5) * hour / pairs
    keys = max(pairs // 200, 1)
    batch = min(max(int(_LONGEST_FLUSH * MILLION / step), 1), _BATCH)
    database.execute(_MESSAGES.format(start=start, step=step, batch=batch, every=EVERY, hot=hot, sessions=keys))
    folder.mkdir(parents=True)
    waiting: list[Future[None]] = []
    with ProcessPoolExecutor(_CORES) as pool:
        for number in range(hours):
            begin, end = start + number * hour, start + (number + 1) * hour
            # What is written in this hour was enqueued in it or up to half an hour before.
            low = max(int((begin - hour / 2 - start) / step), 0)
            high = min(int((end - start) / step) + 1, pairs)
            for role, lines in _LINES.items():
                of_hour = START + timedelta(hours=number)
                into = folder / f"task={TASK}" / f"date={of_hour:%Y-%m-%d}" / f"hour={of_hour:%H}" / f"role={role}"
                into.mkdir(parents=True)
                text = into / "text"
                constants = _CONSTANTS.format(role=role)
                selected = lines.format(low=low, high=high, constants=constants)
                database.execute(_COPY.format(lines=selected, begin=begin, end=end, file=text))
                made = round(of_hour.timestamp() * 1000)
                waiting.append(pool.submit(_compress, text, into / f"0a1b2c3d4e5f6071-{made}.jsonl.gz"))
                if len(waiting) > 2 * _CORES:  # the text of an hour is larger than its journal
                    waiting.pop(0).result()
        for each in waiting:
            each.result()


def _compress(text: Path, into: Path) -> None:
    if text.stat().st_size:
        with text.open("rb") as source, into.open("wb") as target:
            for member in _members(source):
                target.write(compressed(member))
    text.unlink()


def _members(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of each flush, which end with the same fields."""
    for _, of_flush in groupby(lines, key=lambda line: line.rpartition(b',"v":')[2]):
        yield b"".join(of_flush)
