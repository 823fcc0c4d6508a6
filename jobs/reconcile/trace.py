"""What every record said about a message, in sentences and in the order of time."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Row = Mapping[str, Any]


class Step(NamedTuple):
    """One record: when it was made, by whom, and what it says."""

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
    """Return a time as the page shows it, a dash for none."""
    if micros is None:
        return "-"
    try:
        return f"{datetime.fromtimestamp(micros // 1000 / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    except (ValueError, OverflowError, OSError):
        return f"{micros} \u00b5s since 1970"  # no time that a calendar has


def _moment(record: Row) -> tuple[int, bool]:
    return record["journal_time"], record["role"] == "target"


def _step(record: Row) -> Step:
    by_tap = record["observer"] == "tap"
    observer = f"tap {record['tap'] or '(unnamed)'}" if by_tap else f"task {record['task']}"
    part = record["part"]
    text = _TEXTS[record["outcome"]](record) + (
        f"; part {part} of a message that was split" if part is not None else ""
    )
    return Step(moment(record["journal_time"]), observer, text)


def _received(record: Row) -> str:
    text = f"took it from {source_of(record)}"
    if (record["attempt"] or 1) > 1:
        text += f", delivery {record['attempt']}"
    if record["given_up_by"]:
        text += f", given up by {record['given_up_by']}"
    if (record["parts"] or 1) > 1:
        text += f", to make {record['parts']} of it"
    return text


def _sent(record: Row) -> str:
    if record["remembered"]:
        return f"did not send it again: {record['target']} had accepted it from an earlier attempt"
    return f"{record['target']} accepted it{', changed by an editor' if record['edited'] else ''}"


def _seen(record: Row) -> str:
    where = record["target"] if record["role"] == "target" else source_of(record, numbered=False)
    number = "" if record["tgt_seq"] is None else f", number {record['tgt_seq']} there"
    since = "" if record["tgt_enqueued_time"] is None else f" since {moment(record['tgt_enqueued_time'])}"
    return f"saw it in {where}{number}{since}"


def _withheld(what: str) -> Callable[[Row], str]:
    def text(record: Row) -> str:
        reason = record["reason"] or "no reason is given"
        return f"{what}{' at ' + record['target'] if record['target'] else ''}: {reason}"

    return text


def source_of(row: Row, *, numbered: bool = True) -> str:
    """Return the entity that a message entered, with its number there."""
    text = f"{row['src_site']}/{row['src_entity']}"
    if not numbered or row["src_seq"] is None:
        return text
    partition = f", partition {row['src_part']}" if row["src_part"] else ""
    return f"{text}{partition}, number {row['src_seq']}"


_TEXTS: dict[str, Callable[[Row], str]] = {
    "received": _received,
    "sent": _sent,
    "seen": _seen,
    "retry": _withheld("not accepted, to be tried again"),
    "filtered": _withheld("withheld it by rule"),
    "rejected": _withheld("set it aside"),
    "expired": _withheld("withheld it as expired"),
    "looped": _withheld("stopped it as a loop"),
}
