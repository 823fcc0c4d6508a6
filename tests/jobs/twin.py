"""
The verdicts of a window as one query of DuckDB: an oracle that shares only the record with the job.

It reads raw or compacted journals and joins all rows; it has no buckets, windows or earlier runs.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

_RAW = """
create table records as
select distinct on (task, observer, tap, instance, batch_id, role, src_seq, src_part, part, tgt_part, tgt_seq,
                    send_ordinal, outcome, body_digest)
       * replace (coalesce(to_bits("check"), xor(to_bits(body_digest[:16]), to_bits(property_digest))) as "check")
from read_json('{path}', format = 'newline_delimited', compression = 'gzip', hive_partitioning = false, columns = {{
    v: 'integer', task: 'varchar', role: 'varchar', observer: 'varchar', tap: 'varchar', peek: 'boolean',
    instance: 'varchar', batch_id: 'bigint', journal_time: 'bigint', outcome: 'varchar', src_entity: 'varchar',
    src_site: 'varchar', src_part: 'smallint', src_seq: 'bigint', enqueued_time: 'bigint', part: 'integer',
    parts: 'integer', attempt: 'integer', expires_at: 'bigint', message_id: 'varchar', order_key: 'varchar', body_digest: 'varchar',
    property_digest: 'varchar', "check": 'varchar', edited: 'boolean', hops: 'varchar[]', target: 'varchar',
    send_ordinal: 'integer', remembered: 'boolean', joined: 'boolean', handed_over: 'boolean', given_up_by: 'varchar', dead_letter_reason: 'varchar', locked_until: 'bigint', repair: 'boolean', tgt_part: 'smallint', tgt_seq: 'bigint',
    tgt_enqueued_time: 'bigint'}})
"""

_COMPACTED = """
create view records as
select * replace (epoch_us(journal_time) as journal_time, epoch_us(enqueued_time) as enqueued_time,
                  epoch_us(expires_at) as expires_at, epoch_us(tgt_enqueued_time) as tgt_enqueued_time,
                  epoch_us(locked_until) as locked_until)
from read_parquet('{path}', hive_partitioning = false)
"""

_VERDICTS = """
create table verdicts as
with seeing as (
    select task, target, min(journal_time) as first, max(journal_time) as last
    from records where observer = 'tap' and role = 'target' and peek is null group by all
), sending as (
    select task, target, min(journal_time) as first_sent, max(journal_time) as last_sent
    from records where outcome = 'sent' and task in (select task from seeing) group by all
), sharing as (
    -- Several tasks of one site send there: a copy belongs to the task that received its message.
    select distinct tap.task, tap.target, other.task as other
    from (select distinct task, src_site, target from records where observer = 'tap' and role = 'target') tap
    join (select distinct task, src_site, target from records
          where outcome = 'sent' and target in (select target from seeing)) other using (src_site, target)
    where tap.task <> other.task
), copies as (
    select * from records r
    where observer = 'tap' and role = 'target' and src_seq is not null
      and (exists (from records o where o.outcome = 'received' and o.task = r.task and o.src_seq = r.src_seq
                                    and o.enqueued_time = r.enqueued_time and r.task in (select task from sharing))
           or not exists (from sharing s join records o on o.task = s.other
                          where s.task = r.task and s.target = r.target and o.outcome = 'received'
                            and o.src_site = r.src_site and o.src_seq = r.src_seq and o.enqueued_time = r.enqueued_time))
), watched as (
    -- The period in which a tap can miss a message; unlimited if it observed as long as messages were sent.
    select task, target,
           case when first - first_sent > {tolerance} then first + {tolerance} else 0 end as since,
           -- One that goes on seems to have ended too, if the target answered the last message late.
           case when last_sent - last > {tolerance} and exists (
                    from records r where r.task = seeing.task and r.target = seeing.target and r.outcome = 'sent'
                    and r.journal_time > last and not exists (
                        from copies c where c.task = r.task and c.target = r.target and c.src_seq = r.src_seq
                        and c.src_part is not distinct from r.src_part))
                then last - {tolerance} else {end} end as until
    from seeing left join sending using (task, target)
), entered as (
    select task, src_part, src_seq, count(*) filter (observer = 'task') as received, min(enqueued_time) as enqueued,
           max(journal_time) as latest, max(expires_at) as expires, max(message_id) as message_id,
           any_value(src_entity) as entity, max("check") filter (observer = 'task') as said_in,
           min("check") filter (observer = 'tap') as said_before, coalesce(max(parts), 1) as parts,
           max(order_key) as order_key, max(attempt) as attempts, max(body_digest) as body,
           max(given_up_by) as given_up_by, any_value(src_site) as site, max(hops) filter (observer = 'task') as hops,
           -- A message that moves between entities of one site has not left it.
           bool_or(hops is not null and len(list_distinct(left_sites(hops))) < len(left_sites(hops))) as looped
    from records where role = 'source' and src_seq is not null group by all
), ahead as (
    -- A message is received after its source has enqueued it: a clock is ahead by at most the shortest time between.
    select instance, journal_time // 3600000000 as hour, greatest(min(journal_time - enqueued_time), 0) as ahead
    from records where outcome = 'received' and observer = 'task' group by all
), retried as (
    select r.task, r.src_part, r.src_seq, max(t.journal_time) as last_retry,
           -- A pair of nulls counts as a value.
           count(distinct (r.instance, r.batch_id))
           - count(distinct (t.instance, t.batch_id)) filter (t.batch_id is not null) as unended
    from records r left join records t on t.outcome = 'retry' and t.task = r.task and t.src_seq = r.src_seq
         and t.src_part is not distinct from r.src_part and t.instance = r.instance and t.batch_id = r.batch_id
    where r.outcome = 'received' and r.src_seq is not null group by all
), outcomes as (
    select task, src_part, src_seq, outcome, part, target, "check", edited, journal_time, instance,
           case when joined is null then remembered end as remembered,
           message_id, order_key, repair, locked_until, handed_over,
           coalesce(handed_over, false) or (joined is not null and coalesce(remembered, false)) as once,
           batch_id * 100000 + coalesce(send_ordinal, 0) as ordinal,
           joined is null and exists (from watched w where w.task = r.task and w.target = r.target) as is_watched
    from records r where role = 'target' and observer = 'task' and src_seq is not null
), sent as (
    select task, src_part, src_seq, count(*) filter (remembered is null) as sent,
           count(*) filter (remembered is null and not once and not is_watched)
           + len(list_filter(coalesce(list_distinct(list(coalesce(part, 0)) filter (remembered is null and once and not is_watched)), []),
                             lambda each: not coalesce(list_contains(list(coalesce(part, 0)) filter (remembered is null and not once),
                                                                     each), false))) as unwatched,
           count(*) filter (handed_over is null) as accepted,
           bool_or(remembered is not null) as again, bool_or(is_watched) as is_watched,
           min("check") as lowest_out, max("check") as highest_out, bool_or(edited is not null) as edited,
           count(distinct coalesce(part, 0)) filter (remembered is null and not is_watched) as recorded_unwatched,
           len(list_filter(list_distinct(list(coalesce(part, 0)) filter (remembered is not null and not is_watched)),
                           lambda each: not coalesce(list_contains(list(coalesce(part, 0)) filter (remembered is null), each),
                                                     false))) as unrecorded,
           list_distinct(list({{'id': message_id, 'key': order_key}})) as names, bool_or(repair) as is_repaired
    from outcomes o where outcome = 'sent' group by all
), unobserved as (
    -- Each send of a part to a target was before its tap began to observe, or after it ended.
    select distinct task, src_part, src_seq from (
        select o.task, o.src_part, o.src_seq,
               bool_and(o.journal_time < w.since) or bool_and(o.journal_time > w.until) as is_unwatched
        from outcomes o join watched w using (task, target)
        where outcome = 'sent' group by o.task, o.src_part, o.src_seq, target, coalesce(o.part, 0))
    where is_unwatched
), stopping as (
    select o.task, o.src_part, o.src_seq, o.target, e.site, e.entity, e.enqueued, e.message_id, e.body,
           case when list_contains(hops[:-2], split_part(o.target, '/', 1)) then split_part(o.target, '/', 1)
                when len(hops) > 1 then hops[-2] end as named
    from outcomes o join entered e using (task, src_part, src_seq) where o.outcome = 'looped'
), refuted as (
    -- The message was not at the site on its path, by the task that sends from there or the tap there.
    select task, src_part, src_seq from stopping s where named is null or (
        exists (from records r where r.outcome = 'sent' and r.src_site = s.named
                and lower(r.target) = lower(s.site || '/' || split_part(s.entity, '/', 1))
                and (select min(journal_time) from records f
                     where f.task = r.task and f.observer = 'task') <= s.enqueued)
        or exists (from records r where r.observer = 'tap' and r.role = 'target' and r.task = s.task
                   and split_part(r.target, '/', 1) = s.named and r.target = s.target and r.journal_time <= s.enqueued)
    ) and not exists (
        from records r where r.body_digest = s.body and coalesce(r.message_id, s.message_id) = s.message_id
        and s.named = case when r.role = 'source' then r.src_site
                           when r.observer = 'tap' then split_part(r.target, '/', 1) end)
), withholding as (
    select o.* from outcomes o
    left join entered e on e.task = o.task and e.src_seq = o.src_seq and e.src_part is not distinct from o.src_part
    left join ahead a on a.instance = o.instance and a.hour = o.journal_time // 3600000000
    where outcome in ('filtered', 'rejected')
       or outcome = 'looped' and not exists (
              from refuted x where x.task = o.task and x.src_seq = o.src_seq
              and x.src_part is not distinct from o.src_part)
       or outcome = 'expired' and e.expires > e.enqueued and e.expires <= greatest(o.journal_time - a.ahead, case when o.locked_until - 300000000 <= o.journal_time then o.locked_until - 300000000 end)
), withheld as (
    select task, src_part, src_seq, count(distinct coalesce(part, 0)) as parts,
           min(case outcome when 'rejected' then 1 when 'expired' then 2 when 'looped' then 3 else 4 end) as worst
    from withholding o
    where not exists (from outcomes s where s.outcome = 'sent' and s.task = o.task and s.src_seq = o.src_seq
                      and s.src_part is not distinct from o.src_part and coalesce(s.part, 0) = coalesce(o.part, 0))
    group by all
), seen as (
    select task, src_part, src_seq, count(distinct (target, tgt_part, tgt_seq, tgt_enqueued_time)) as seen, min("check") as lowest_seen,
           max("check") as highest_seen, max(order_key) as order_key,
           min(enqueued_time) as enqueued, list_distinct(list({{'id': message_id, 'key': order_key}})) as seen_names
    from copies group by all
), arrived_at as (
    -- A message with several targets has arrived when the last of them has it.
    select task, src_part, src_seq, max(came) as arrived from (
        select task, src_part, src_seq, target,
               coalesce(min(came) filter (is_seen), min(came) filter (not is_seen)) as came
        from (select task, src_part, src_seq, target, tgt_enqueued_time as came, true as is_seen from copies
              union all select task, src_part, src_seq, target, journal_time, false from outcomes
                        where outcome = 'sent' and remembered is null)
        group by all)
    group by all
), due_kinds as (
    -- Parts of one message differ in their ids or in their content.
    select o.task, o.src_part, o.src_seq, o.target, (o."check", coalesce(o.message_id, e.message_id)) as kind,
           count(distinct coalesce(o.part, 0)) as due
    from outcomes o join entered e using (task, src_part, src_seq)
    where outcome = 'sent' and is_watched and o."check" is not null group by all
), seen_kinds as (
    select task, src_part, src_seq, target, ("check", message_id) as kind,
           count(distinct (tgt_part, tgt_seq, tgt_enqueued_time)) as copies
    from copies group by all
), seen_parts as (
    select s.task, s.src_part, s.src_seq, sum(least(coalesce(d.due, 1), s.copies)) as seen_parts
    from seen_kinds s left join due_kinds d
      on d.task = s.task and d.src_seq = s.src_seq and d.src_part is not distinct from s.src_part
         and d.target = s.target and d.kind = s.kind
    group by all
), arrivals as (
    select task, target, src_part, src_seq, order_key, tgt_part, tgt_seq as major, 0 as minor, src_seq as number,
           enqueued_time as enqueued, null as clock
    from copies where order_key is not null and (task, target) not in (select task, target from sharing)
    union all
    select task, target, src_part, src_seq, e.order_key, null, journal_time, ordinal, src_seq, e.enqueued, instance
    from outcomes o join entered e using (task, src_part, src_seq)
    where outcome = 'sent' and remembered is null and not is_watched and e.order_key is not null
), firsts as (
    select *, row_number() over (partition by task, target, src_part, src_seq order by major, minor) as nth,
           max(number) over (partition by task, target, tgt_part, src_part, order_key order by major, minor
                             rows between unbounded preceding and 1 preceding) as highest
    from arrivals
), behind as (
    select distinct task, src_part, src_seq from firsts f where nth = 1 and number < highest and exists (
        from arrivals a where a.task = f.task and a.target = f.target and a.order_key = f.order_key
          and a.src_part is not distinct from f.src_part and a.tgt_part is not distinct from f.tgt_part
          and a.number > f.number and a.enqueued >= f.enqueued
          -- The order by two clocks is known only for times more than a minute apart.
          and (a.clock is not distinct from f.clock and (a.major, a.minor) < (f.major, f.minor)
               or a.major + 60000000 < f.major))
), joined as (
    select task, src_part, src_seq, message_id, entity, expires, latest, attempts, looped, said_in, said_before,
           e.received, e.src_seq is not null as is_entered,
           coalesce(e.enqueued, v.enqueued) as enqueued,
           e.parts - coalesce(w.parts, 0) as due, w.worst, coalesce(s.sent, 0) as sent, coalesce(s.accepted, 0) as accepted,
           coalesce(s.is_watched, false) as is_watched,
           exists (from unobserved u where u.task = e.task and u.src_seq = e.src_seq
                                       and u.src_part is not distinct from e.src_part) as is_unwatched,
           coalesce(v.seen, 0) as seen, e.body, e.given_up_by, coalesce(s.is_repaired, false) as is_repaired,
           coalesce(s.unrecorded, 0) > coalesce(v.seen, 0) as is_unrecorded,
           e.expires is not null and not exists (
               from outcomes f where f.task = e.task and f.outcome <> 'retry'
               and f.journal_time > greatest(e.enqueued, coalesce(r.last_retry, 0)) and f.journal_time <= e.expires) as is_away,
           coalesce(r.unended, 0) = 0 and not exists (
               from outcomes x where x.task = e.task and x.src_seq = e.src_seq
               and x.src_part is not distinct from e.src_part and x.outcome = 'expired') as was_left,
           case when v.seen > 0 then p.seen_parts
                else coalesce(s.recorded_unwatched, 0) + coalesce(s.unrecorded, 0) end as arrived_parts,
           v.seen > 0 and e.received > 0 and exists (
               from (select unnest(seen_names) as n)
               where not list_contains(
                   list_transform(coalesce(s.names, [{{'id': null, 'key': null}}]), lambda one: coalesce(one.id, e.message_id, '')),
                   coalesce(n.id, ''))
                  or not list_contains(
                   list_transform(coalesce(s.names, [{{'id': null, 'key': null}}]), lambda one: coalesce(one.key, e.order_key, '')),
                   coalesce(n.key, ''))) as is_renamed,
           case when v.seen > 0 and (s.is_watched or exists (from watched x where x.task = e.task)) then v.seen
                else greatest(coalesce(s.unwatched, 0) + coalesce(s.unrecorded, 0), coalesce(v.seen, 0))
           end as copies,
           a.arrived,
           lowest_out, highest_out, edited, lowest_seen, highest_seen
    from entered e
    full join sent s using (task, src_part, src_seq)
    full join withheld w using (task, src_part, src_seq)
    full join seen v using (task, src_part, src_seq)
    left join retried r using (task, src_part, src_seq)
    left join seen_parts p using (task, src_part, src_seq)
    left join arrived_at a using (task, src_part, src_seq)
), counted as (
    select *,
           case when copies > 0 then greatest(coalesce(due, 1), 1) else greatest(coalesce(due, 1), 0) end as expected,
           coalesce((said_in is not null and not coalesce(edited, false)
                     and (lowest_out <> said_in or highest_out <> said_in))
               or (said_before is not null and said_before <> said_in)
               or (seen > 0 and (lowest_seen <> coalesce(lowest_out, said_in)
                                 or highest_seen <> coalesce(highest_out, said_in))
                   and expected = 1)
               or is_renamed, false) as altered
    from joined
)
select task, t.src_part, t.src_seq, message_id, copies, expected, entity, attempts, body, enqueued, sent, accepted, seen, is_away,
       case
         when not is_entered and copies > 0 then
           case when (t.task, 'source', arrived // 3600000000) in (from gaps) then 'undecided' else 'orphan' end
         when expected > 0 and arrived_parts < expected and not looped then
           case when greatest(enqueued, latest) > {end} - {grace} then 'in_flight'
                when is_unwatched or (t.task, 'target', latest // 3600000000) in (from gaps) then 'undecided'
                when expires <= {end} and is_away and was_left and sent + seen = 0 then 'expired-unsent'
                else 'missing' end
         when looped then 'looped'
         when altered then 'altered'
         when copies > expected then 'duplicated'
         when is_unrecorded then 'undecided'
         when is_repaired and contains(t.task, '~') then 'replayed'
         when is_repaired then 'repaired'
         when b.src_seq is not null then 'out_of_order'
         when arrived - enqueued > {late} and given_up_by is null then 'late'
         when expected = 0 then ['rejected', 'expired', 'stopped', 'filtered'][worst]
         else 'delivered'
       end as verdict
from counted t left join behind b using (task, src_part, src_seq)
"""

# A dead letter is a message by its id, body and enqueued time. None of the planted ones was forwarded.
_LETTERS = """
update verdicts set verdict = case when is_expired and is_away then 'expired-unsent' when is_expired then 'expired'
                                   else 'spilled' end
from (
    select v.rowid as letter, d.is_expired from verdicts v join (
        select given_up_by as entity, message_id, body_digest as body, enqueued_time as enqueued,
               count(distinct src_seq) as given_up,
               coalesce(bool_or(dead_letter_reason = 'TTLExpiredException'), false) as is_expired
        from records where given_up_by is not null and role = 'source' group by all
        having bool_or(observer = 'task') or is_expired
    ) d using (entity, message_id, body, enqueued)
    where v.accepted = 0 and v.seen = 0 and (
        v.verdict in ('in_flight', 'undecided', 'missing', 'expired-unsent') or v.sent > 0)
    qualify row_number() over (partition by task, entity, message_id, body, enqueued
                               order by attempts desc nulls last, src_part, src_seq) <= given_up)
where verdicts.rowid = letter
"""


def connect(memory: str | None = None) -> duckdb.DuckDBPyConnection:
    """Return a database in memory that uses two threads."""
    database = duckdb.connect()
    database.execute("set threads = 2")
    if memory is not None:
        database.execute(f"set memory_limit = '{memory}'")
    database.execute("create macro to_bits(hex) as ('0x' || hex)::ubigint")
    database.execute(
        "create macro left_sites(hops) as list_filter(hops, lambda site, nth: nth = 1 or site <> hops[nth - 1])"
    )
    return database


def judge(
    database: duckdb.DuckDBPyConnection,
    *,
    raw: Path | None = None,
    compacted: Path | None = None,
    end: datetime,
    grace: timedelta = timedelta(hours=1),
    late: timedelta = timedelta(minutes=15),
    tolerance: timedelta = timedelta(minutes=1),
    gaps: Iterable[tuple[str, str, datetime]] = (),
) -> None:
    """
    Make the table `verdicts` from *raw* journals or *compacted* records.

    Shape:   *gaps* are task, role and start of the hours without evidence; only raw journals have any.
    """
    database.execute("create or replace table gaps (task varchar, role varchar, hour bigint)")
    for task, role, hour in gaps:
        database.execute("insert into gaps values (?, ?, ?)", [task, role, int(hour.timestamp()) // 3600])
    if raw is not None:
        database.execute(_RAW.replace("'{path}'", f"'{raw}/*/*/*/*/*.jsonl.gz'").replace("{{", "{").replace("}}", "}"))
    else:
        database.execute(_COMPACTED.format(path=f"{compacted}/*/*.parquet"))
    database.execute(
        _VERDICTS.format(
            end=round(end.timestamp() * 1_000_000),
            grace=round(grace.total_seconds() * 1_000_000),
            late=round(late.total_seconds() * 1_000_000),
            tolerance=round(tolerance.total_seconds() * 1_000_000),
        )
    )
    database.execute(_LETTERS)
