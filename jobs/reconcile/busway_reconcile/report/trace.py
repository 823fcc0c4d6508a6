"""The records of a message as sentences, in order of time."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Step(NamedTuple):
    """One record: its time, its writer, and its content in words."""

    time: str
    observer: str
    text: str


def trace(records: Iterable[Row]) -> list[Step]:
    """
    Return a step for each of *records*, all of one message.

    Units:   times in *records* are microseconds since 1970 UTC.
    """
    return [_step(record) for record in sorted(records, key=_moment)]


def moment(micros: int | None) -> str:
    """Return a time as the page shows it, or a dash."""
    if micros is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(micros // 1000 / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{micros} \u00b5s since 1970"  # outside the calendar


def _moment(record: Row) -> tuple[int, bool]:
    return record["journal_time"], record["role"] == "target"


def _step(record: Row) -> Step:
    by_tap = record["observer"] == "tap"
    observer = f"tap {record['tap'] or '(unnamed)'}" if by_tap else f"task {record['task']}"
    part = record["part"]
    text = _TEXTS[record["outcome"]](record) + (f"; part or target {part}" if part is not None else "")
    return Step(moment(record["journal_time"]), observer, text)


def _received(record: Row) -> str:
    text = f"received it from {source_of(record)}"
    if (record["attempt"] or 1) > 1:
        text += f", delivery attempt {record['attempt']}"
    if record["given_up_by"]:
        text += f", dead-lettered by {record['given_up_by']}"
    if (record["parts"] or 1) > 1:
        text += f", for {record['parts']} parts or targets"
    return text


def _sent(record: Row) -> str:
    if record["remembered"]:
        # Such a record has no target.
        return "did not send it again: the target had accepted it before"
    if record["handed_over"]:
        return f"asked the host to send it to {record['target']}; whether it did is not on record"
    return f"sent it, and {record['target']} accepted it{' (changed by an editor)' if record['edited'] else ''}"


def _seen(record: Row) -> str:
    where = record["target"] if record["role"] == "target" else source_of(record, numbered=False)
    number = "" if record["tgt_seq"] is None else f", sequence number {record['tgt_seq']}"
    since = "" if record["tgt_enqueued_time"] is None else f", enqueued {moment(record['tgt_enqueued_time'])}"
    return f"saw it in {where}{number}{since}"


def _withheld(what: str) -> Callable[[Row], str]:
    def text(record: Row) -> str:
        reason = record["reason"] or "no reason recorded"
        return f"{what}{' at ' + record['target'] if record['target'] else ''}: {reason}"

    return text


def source_of(row: Row, *, numbered: bool = True) -> str:
    """Return the entity that a message entered, with its sequence number there."""
    text = f"{row['src_site']}/{row['src_entity']}"
    if not numbered or row["src_seq"] is None:
        return text
    partition = f", partition {row['src_part']}" if row["src_part"] else ""
    return f"{text}{partition}, sequence number {row['src_seq']}"


_TEXTS: dict[str, Callable[[Row], str]] = {
    "received": _received,
    "sent": _sent,
    "seen": _seen,
    "retry": _withheld("could not send it, and will retry"),
    "filtered": _withheld("filtered it"),
    "rejected": _withheld("rejected it"),
    "expired": _withheld("withheld it as expired"),
    "looped": _withheld("stopped it to prevent a loop"),
    # Of no message, unless somebody else wrote it.
    "gap": _withheld("could not write records"),
}
