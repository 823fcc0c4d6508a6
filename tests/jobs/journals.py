"""Journals as the writers leave them, with planted faults and the verdicts to expect."""

import gzip
import json
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 20, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
AT = START + 20 * MINUTE
TASK, SITE, ENTITY, TARGET = "orders-west-to-east", "west", "orders/Subscriptions/replication", "east/orders"
INSTANCE = "wn1-1795132800000"

Record = dict[str, Any]

AWAKE = 900_000
"""The first sequence number of the messages, one an hour, that only show that the task is running."""

PLAIN_KINDS = (
    "missing", "orphan", "looped", "altered", "duplicated", "out_of_order", "late",
    "filtered", "rejected", "expired", "stopped", "spilled", "in_flight", "expired-unsent", "repaired",
)  # fmt: skip
VERDICT_OF = {kind: kind for kind in PLAIN_KINDS} | {
    "own_path": "stopped",
    "altered_property": "altered",
    "tripled": "duplicated",
    "part_missing": "missing",
    "spilled_of_two": "spilled",
    # Losses and changes that other records seem to explain.
    "outlived": "missing",
    "part_doubled": "missing",
    "renamed": "altered",
    "moved": "altered",
    "other_letter": "missing",
    "accepted_letter": "missing",
    "other_time_letter": "missing",
    "early": "missing",
    "lifeless": "missing",
    "recalled": "missing",
    "retried": "missing",
    "forged": "missing",
    "pathless": "missing",
    "zero_life": "missing",
    "negative_life": "missing",
}

KINDS = tuple(VERDICT_OF)

WITHOUT_TAPS = {"renamed": "delivered", "moved": "delivered", "accepted_letter": "delivered", "recalled": "undecided"}
"""Where only a tap at the target shows the fault."""


def us(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def digest(text: str, size: int = 16) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


def check(body: str, properties: str) -> str:
    return f"{int(body[:16], 16) ^ int(properties, 16):016x}"


@dataclass
class Journals:
    """The records of one task and its taps."""

    task: str = TASK
    entity: str = ENTITY
    target: str = TARGET
    part: int = 0
    instance: str = INSTANCE
    records: list[tuple[datetime, Record]] = field(default_factory=list)
    batches: int = 0
    seen: int = 9000
    kinds: dict[int, str] = field(default_factory=dict)

    def _add(self, written: datetime, record: Record) -> None:
        shared = {
            "v": 1, "task": self.task, "src_site": SITE, "src_entity": self.entity, "src_part": self.part,
            "instance": self.instance, "journal_time": us(written), "observer": "task", "batch_id": self.batches,
        }  # fmt: skip
        merged = {**shared, **record}
        self.records.append((written, {name: value for name, value in merged.items() if value is not None}))

    def content(self, seq: int, enqueued: datetime, salt: str = "") -> Record:
        return {
            "src_seq": seq,
            "enqueued_time": us(enqueued),
            "message_id": f"m-{seq}",
            "body_digest": digest(f"body {seq}{salt}"),
            "property_digest": digest(f"properties {seq}", 8),
            "body_size": 100,
            "hops": [SITE],
        }

    def received(self, seq: int, enqueued: datetime, at: datetime, **more: Any) -> None:
        self.batches += 1
        self._add(at, {**self.content(seq, enqueued), "role": "source", "outcome": "received", **more})

    def outcome(self, seq: int, at: datetime, outcome: str = "sent", **more: Any) -> None:
        content = self.content(seq, at)
        said = check(content["body_digest"], content["property_digest"]) if outcome == "sent" else None
        target = None if outcome == "filtered" else self.target
        self._add(
            at,
            {"src_seq": seq, "role": "target", "outcome": outcome, "send_ordinal": 0, "target": target, "check": said}
            | more,
        )

    def carried(
        self, seq: int, enqueued: datetime, at: datetime | None = None, after: timedelta = timedelta(), **more: Any
    ) -> None:
        """Add that a message was received *at* a time, or when it was enqueued, and sent *after* that."""
        received = at or enqueued
        self.received(seq, enqueued, received, **more)
        self.outcome(seq, received + after)

    def steady(
        self, first: int = 1, start: datetime = START, *, count: int = 30, hours: int = 1, **more: Any
    ) -> "Journals":
        """Add *count* messages from the number *first* on, evenly over some *hours*."""
        for number in range(count):
            at = start + hours * HOUR / count * number + MINUTE
            self.carried(first + number, at, at + SECOND, SECOND, **more)
        return self

    def entered_tap(self, seq: int, enqueued: datetime, at: datetime, **more: Any) -> None:
        view = {"tgt_part": 0, "tgt_seq": seq, "tgt_enqueued_time": us(enqueued), "tap": "watch-source"}
        seen = {"role": "source", "observer": "tap", "outcome": "seen"}
        self._add(at, {**self.content(seq, enqueued), **seen, **view, **more})

    def arrived_tap(self, seq: int, enqueued: datetime, at: datetime, *, salt: str = "", **more: Any) -> None:
        self.seen += 1
        view = {"tgt_part": 0, "tgt_seq": self.seen, "tgt_enqueued_time": us(at), "tap": "watch-target"}
        seen = {"role": "target", "observer": "tap", "outcome": "seen", "target": self.target}
        self._add(at + timedelta(seconds=1), {**self.content(seq, enqueued, salt), **seen, **view, **more})

    def write(self, root: Path, *, name: str = "wn1") -> list[Path]:
        return write(root, self.records, name)


def write(root: Path, records: Iterable[tuple[datetime, Record]], name: str = "wn1") -> list[Path]:
    """Write *records* in the folders of a journal, with a gzip member for every few of them."""
    files: dict[Path, list[Record]] = defaultdict(list)
    for written, record in records:
        folder = root / f"task={record['task']}" / f"date={written:%Y-%m-%d}" / f"hour={written:%H}"
        made = us(written.replace(minute=0, second=0, microsecond=0)) // 1000
        files[folder / f"role={record['role']}" / f"{name}-{made}.jsonl.gz"].append(record)
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for at in range(0, len(lines), 50):
                text = "".join(json.dumps(line) + "\n" for line in lines[at : at + 50])
                file.write(gzip.compress(text.encode(), 1))
    return sorted(files)


def of_task(task: str, instance: str = "wn1-1") -> Journals:
    return Journals(task=task, entity=f"{task}/Subscriptions/replication", target=f"east/{task}", instance=instance)


def running(journals: Journals, *, hours: int = 4, since: int = 0, is_seen: bool = False) -> Journals:
    """Return *journals* with a message in each hour, which the tap at the target sees if *is_seen*."""
    for hour in range(since, hours):
        at = START + hour * HOUR + MINUTE
        journals.carried(AWAKE + hour, at, after=SECOND)
        if is_seen:
            journals.arrived_tap(AWAKE + hour, at, at + SECOND)
    return journals


LIVES = {
    "expired": timedelta(minutes=61),
    "expired-unsent": timedelta(seconds=2),
    "outlived": timedelta(minutes=10),
    "retried": timedelta(minutes=61),
    "early": timedelta(minutes=30),
    "zero_life": timedelta(0),
    "negative_life": -timedelta(minutes=1),
}
"""The times to live of planted messages."""


def passed_on(content: Record) -> Record:
    """Return the checksum of an outcome whose message has *content*."""
    return {"check": check(content["body_digest"], content["property_digest"])}


def content_of(seq: int) -> Record:
    """Return the content of the message *seq*."""
    return {"body_digest": digest(f"body {seq}"), "property_digest": digest(f"properties {seq}", 8)}


def planted(  # noqa: C901, PLR0912, PLR0915 - one case for each kind, in one place to be read as a table
    kinds: Iterable[str],
    *,
    taps: bool,
    hours: int = 4,
    seed: int = 0,
    start: datetime = START,
    task: str = TASK,
    offset: int = 0,
) -> tuple[Journals, dict[int, str]]:
    """
    Return the journals of messages with the faults *kinds*, one message after the other within *hours* less one.

    The number, id and content of a message are the same in all journals with the same *offset*.
    Also return the plan: the verdict of each sequence number (`Journals.kinds` has what was planted). Messages in
    flight are enqueued at the end.
    """
    chance = random.Random(seed)
    # Each task of a test has a source of its own, so that none counts as the successor of another.
    journals = Journals() if task == TASK else of_task(task, INSTANCE)
    entity, target = journals.entity, journals.target
    dead = Journals(task=f"spill-{task}", entity=f"{entity}/$DeadLetterQueue", target=f"{target}-spilled")
    # The task of the other site, which sends to this one what is stopped here.
    root = entity.partition("/")[0]
    back = Journals(task=f"back-{task}", entity=f"{target.partition('/')[2]}/Subscriptions/back", target=f"west/{root}")
    there: Record = {"src_site": "east", "hops": ["east"]}
    wanted = list(kinds)
    plan: dict[int, str] = {}
    step = timedelta(hours=hours - 1) / (2 * len(wanted) + 2)
    arrivals: list[tuple[datetime, dict[str, Any]]] = []
    seq = offset
    for kind in wanted:
        seq += 1
        at = start + step * (seq - offset) + timedelta(minutes=2)
        key = None if kind == "late" else f"session-{chance.randrange(max(len(wanted) // 4, 1))}"
        if kind == "in_flight":
            at, key = start + timedelta(hours=hours) - timedelta(minutes=10), None
        if kind == "out_of_order":
            key = f"alone-{seq}"
        entry = at + timedelta(milliseconds=300)
        arrival = entry + timedelta(milliseconds=chance.randrange(50, 400))
        more: Record = {"order_key": key}
        hops = [SITE, "east", SITE] if kind == "looped" else [SITE]
        if kind in ("stopped", "forged", "own_path"):
            hops = ["north" if kind == "own_path" else "east", SITE]
        life = timedelta(seconds=40) if kind == "expired" and not taps else LIVES.get(kind)
        expires = None if life is None else us(at + life)
        if kind != "orphan":
            if taps:
                journals.entered_tap(seq, at, entry, **more, hops=hops, expires_at=expires)
            if kind not in ("spilled", "expired", "expired-unsent") or not taps:
                parts = {"part_missing": 3, "part_doubled": 2}.get(kind)
                ahead = timedelta(minutes=45 * (kind == "early"))
                own: Record = {"instance": "wn9-ahead"} if kind == "early" else {}
                journals.received(seq, at, entry + ahead, **more, hops=hops, parts=parts, expires_at=expires, **own)
        match kind:
            case "missing":
                if chance.random() < 0.5 and taps:
                    journals.outcome(seq, arrival)
            case "orphan":
                if taps:
                    arrivals.append((arrival, {"seq": seq, "enqueued": at, **more}))
                else:
                    journals.batches += 1
                    journals.outcome(seq, arrival)
            case "part_missing":
                for part in range(2):
                    journals.outcome(seq, arrival, part=part, send_ordinal=part)
                    arrivals.append((arrival, {"seq": seq, "enqueued": at, **more}))
            case "altered" | "altered_property":
                salt = f"{chance.random()}"
                if taps:
                    journals.outcome(seq, arrival)
                else:
                    journals.outcome(seq, arrival, check=check(digest(salt), digest(salt, 8)))
                other = {"salt": salt} if kind == "altered" else {"property_digest": digest(salt, 8)}
                arrivals.append((arrival, {"seq": seq, "enqueued": at, **other, **more}))
            case "duplicated" | "tripled":
                journals.outcome(seq, arrival)
                arrivals.append((arrival, {"seq": seq, "enqueued": at, **more}))
                for attempt in (2, 3) if kind == "tripled" else (2,):
                    again = arrival + timedelta(minutes=chance.randrange(1, 20) * (attempt - 1), milliseconds=attempt)
                    if not taps:
                        journals.carried(seq, at, again, **more, attempt=attempt)
                    arrivals.append((again, {"seq": seq, "enqueued": at, **more}))
            case "out_of_order":
                later = seq + 1
                if taps:
                    journals.entered_tap(later, at + step, at + step, **more)
                journals.received(later, at + step, at + step + timedelta(milliseconds=300), **more)
                journals.outcome(later, at + step + timedelta(milliseconds=400))
                arrivals.append(
                    (at + step + timedelta(milliseconds=400), {"seq": later, "enqueued": at + step, **more})
                )
                plan[later] = "delivered"
                after = at + step + timedelta(minutes=1)
                if not taps:
                    journals.received(seq, at, after, **more, attempt=2)
                journals.outcome(seq, after)
                arrivals.append((after, {"seq": seq, "enqueued": at, **more}))
                seq += 1
            case "late":
                journals.outcome(seq, at + timedelta(minutes=25))
                arrivals.append((at + timedelta(minutes=25), {"seq": seq, "enqueued": at, **more}))
            case "filtered" | "rejected":
                journals.outcome(seq, arrival, kind, stage="routed", reason="as it should be")
            case "expired":
                if taps:
                    # The task worked during its life, and its source dead-lettered it.
                    given_up = {"given_up_by": entity, "dead_letter_reason": "TTLExpiredException"}
                    dead.received(seq, at, at + LIVES[kind], **given_up)
                    dead.outcome(seq, at + LIVES[kind])
                else:
                    journals.outcome(seq, at + timedelta(seconds=49), "expired", stage="stamped")
            case "expired-unsent":
                if not taps:
                    journals.outcome(seq, arrival, "retry", stage="sent", reason="the target is away")
            case "outlived":
                pass
            case "retried":
                journals.outcome(seq, arrival, "retry", stage="sent", reason="the target is away")
            case "lifeless" | "zero_life" | "negative_life":
                journals.outcome(seq, arrival, "expired", stage="stamped")
            case "early":
                journals.outcome(seq, arrival + ahead, "expired", stage="stamped", instance="wn9-ahead")
            case "recalled":
                journals.outcome(seq, arrival, remembered=True, check=None)
            case "renamed" | "moved":
                journals.outcome(seq, arrival)
                name = {"message_id": "another"} if kind == "renamed" else {"order_key": "another"}
                arrivals.append((arrival, {"seq": seq, "enqueued": at, **more, **name}))
            case "part_doubled":
                texts = [digest(f"part {part} of {seq}") for part in range(2)]
                properties = digest("of a part", 8)
                for part in (0, 1) if taps else (0, 0):
                    split: Record = {"edited": True, "body_digest": texts[part], "message_id": f"m-{seq}-{part}"}
                    journals.batches += 1
                    journals.outcome(seq, arrival, part=part, check=check(texts[part], properties), **split)
                    first = {"body_digest": texts[0], "property_digest": properties, "message_id": f"m-{seq}-0"}
                    arrivals.append((arrival, {"seq": seq, "enqueued": at, **more, **first}))
            case "other_letter" | "other_time_letter" | "accepted_letter":
                # A dead letter with the same id: of other content, of another time, or of an accepted message.
                if kind == "accepted_letter":
                    journals.outcome(seq, arrival)
                content = content_of(seq) | ({"body_digest": digest("another")} if kind == "other_letter" else {})
                time = at + timedelta(seconds=1) if kind == "other_time_letter" else at
                dead.received(seq + 500_000, time, arrival, message_id=f"m-{seq}", given_up_by=entity, **content)
                dead.outcome(seq + 500_000, arrival, **passed_on(content))
            case "repaired":
                repaired = arrival + timedelta(minutes=30)
                journals.received(seq, at, repaired, **more, repair=True, instance="laptop-1")
                journals.outcome(seq, repaired, repair=True, instance="laptop-1")
                arrivals.append((repaired, {"seq": seq, "enqueued": at, **more}))
            case "stopped" | "forged" | "own_path" | "pathless":
                journals.outcome(seq, arrival, "looped", stage="routed", reason="it has been there")
                if kind == "stopped":
                    back.received(seq + 700_000, at, at, message_id=f"m-{seq}", **content_of(seq), **there)
                    back.outcome(seq + 700_000, at, **passed_on(content_of(seq)), src_site="east")
            case "spilled":
                if not taps:
                    journals.outcome(seq, arrival, "retry", stage="sent", reason="the target is away")
                dead.received(seq + 500_000, at, arrival, message_id=f"m-{seq}", given_up_by=entity, **content_of(seq))
                dead.outcome(seq + 500_000, arrival, **passed_on(content_of(seq)))
            case "spilled_of_two":
                # Of two messages with one id, one was dead-lettered and one was lost.
                twice = {"message_id": f"twice-{seq}", **content_of(seq)}
                journals.received(seq, at, arrival, **twice, attempt=10)
                dead.received(seq + 500_000, at, arrival, **twice, given_up_by=entity)
                dead.outcome(seq + 500_000, arrival, **passed_on(content_of(seq)))
                for entered in (journals.received, *[journals.entered_tap] * taps):
                    entered(seq + 1, at, entry, **twice)
                seq += 1
                plan[seq] = "missing"
            case "in_flight":
                pass
            case _:
                journals.outcome(seq, arrival)
                arrivals.append((arrival, {"seq": seq, "enqueued": at, **more, "hops": hops}))
        of_kind = seq - 1 if kind in ("out_of_order", "spilled_of_two") else seq
        plan[of_kind] = VERDICT_OF.get(kind, kind) if taps else WITHOUT_TAPS.get(kind, VERDICT_OF.get(kind, kind))
        if kind == "early" and entry + ahead > start + timedelta(hours=hours - 1):
            plan[of_kind] = "in_flight"
        journals.kinds[of_kind] = kind
    # A running task writes records of both sides in every hour, or else a file is missing. A tap can miss a message
    # only between its first and its last record.
    for hour in range(hours):
        seq = AWAKE + hour
        at = start + timedelta(hours=hour, minutes=5 if hour else 1)
        if taps:
            journals.entered_tap(seq, at, at)
        journals.carried(seq, at, after=timedelta(seconds=1))
        arrivals.append((at + timedelta(seconds=1), {"seq": seq, "enqueued": at}))
        plan[seq] = "delivered"
    if taps:
        numbers: dict[int, int] = {}
        for when, seen in sorted(arrivals, key=lambda pair: pair[0]):
            seq = seen.pop("seq")
            if journals.kinds.get(seq) == "tripled" and seq in numbers:
                # The target was deleted and created again between the copies.
                seen |= {"tgt_seq": numbers[seq], "batch_id": journals.batches + journals.seen}
            journals.arrived_tap(seq, seen.pop("enqueued"), when, **seen)
            numbers.setdefault(seq, journals.seen)
    if {"stopped", "forged"} & {*wanted}:
        back.received(700_000, start, start, **there)
        back.outcome(700_000, start, src_site="east")
    journals.records += [*dead.records, *back.records]
    return journals, plan
