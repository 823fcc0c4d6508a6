"""Marks taken in one region and read in the other's copy."""

import queue
import re
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient

import busway_clients.aio.sessions as aio
from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.thread import RunningBroker
from busway_clients.rows import Write
from busway_clients.sessions import (
    Bookmarks,
    Conflict,
    JournalMalformed,
    JournalRefused,
    Mark,
    Place,
    Seen,
    Translation,
    joined,
    seen_event,
    seen_message,
)
from busway_clients.sessions.marks import mark_row
from tests.clients.sessions.mark_histories import MarkHistory
from tests.clients.sessions.region import new_store

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/guaranteed-ordering.md").read_text(encoding="utf-8")
[PROGRAM] = re.findall(r"<!-- marks -->\n```python\n(.*?)```\n", PAGE, re.DOTALL)

START = 1_790_000_000.0
PARTITIONS = {"west": ["0", "1"], "east": ["0", "1", "2"]}


def native(number: int, partition: str = "", site: str = "west", seconds: Any = None, name: Any = None) -> Seen:
    return Seen(site, site, partition, name, number, START + (number if seconds is None else seconds))


def copy(
    number: int, partition: str = "", *, site: str = "east", origin: str = "west", seconds: Any = None, name: Any = None
) -> Seen:
    return Seen(origin, site, partition, name, number, START + (number if seconds is None else seconds))


def marked(*done: Any) -> Any:
    mark = Mark()
    for seen in done:
        mark = mark.after(seen)
    return mark


def test_messages_are_compared_by_origin_number_and_time() -> None:
    times = "2026-11-21T10:00:00.250Z;2026-11-21T10:00:05.000Z"
    copied = {b"repl-path": b"west;central", b"repl-sequence": b"17;4", b"repl-enqueue-time": times.encode()}
    now = datetime.now(UTC)
    message: Any = SimpleNamespace(
        message_id="a", sequence_number=3, enqueued_time_utc=now, application_properties=copied
    )
    at = datetime(2026, 11, 21, 10, 0, 0, 250_000, UTC).timestamp()

    def seen() -> Seen:
        return replace(seen_message(message, "east"), content="")

    assert seen() == Seen("west", "east", "", "a", 17, at, 3, now.timestamp())
    message.application_properties[b"repl-sequence"] = b"9" * 5000
    assert seen() == Seen("west", "east", "", "a", None, at, 3, now.timestamp())
    # It cannot have been sent after it arrived, and these name no other site.
    message.application_properties[b"repl-enqueue-time"] = b"9999-12-31T00:00:00Z"
    assert seen().enqueued is None
    for path in (b"east", b"east;west", b"", b"west/0", b"west@east", b"w" * 65):
        message.application_properties[b"repl-path"] = path
        assert seen() == Seen("east", "east", "", "a", 3, now.timestamp())
    event = SimpleNamespace(
        message_id=None, sequence_number=3, enqueued_time=datetime.fromtimestamp(START, UTC), properties={}
    )
    assert replace(seen_event(event, "east", "2"), content="") == Seen("east", "east", "2", None, 3, START)


def test_agreeing_numbers_decide_exactly() -> None:
    translation = Translation(marked(native(7)), numbers_agree=True)
    assert [translation.place(copy(n, seconds=0)) for n in (6, 7, 8)] == [Place.DONE, Place.DONE, Place.NEXT]


def test_otherwise_times_decide_outside_the_allowance_and_ids_within() -> None:
    mark = marked(*(native(n, name=f"m{n}") for n in range(1, 101) if n != 98))
    translation = Translation(mark)
    places = {n: translation.place(copy(900 + n, seconds=n, name=f"m{n}")) for n in range(1, 111)}
    assert {n for n, place in places.items() if place is Place.DONE} == set(range(1, 101)) - {98}
    # Not among the last ids, which are complete: it was not done.
    assert places[98] is Place.NEXT
    assert all(places[n] is Place.NEXT for n in range(101, 111))
    nameless = {n: translation.place(copy(900 + n, seconds=n)) for n in (94, 96, 104, 106)}
    assert nameless == {94: Place.DONE, 96: Place.UNSURE, 104: Place.UNSURE, 106: Place.NEXT}


def test_too_many_messages_within_the_allowance_are_unsure_but_not_lost() -> None:
    mark = marked(*(native(n, seconds=n / 1000, name=f"m{n}") for n in range(1000)))
    translation = Translation(mark)
    places = [translation.place(copy(n, seconds=n / 1000, name=f"m{n}")) for n in range(1000)]
    assert set(places[:800]) == {Place.UNSURE}
    assert set(places[800:]) == {Place.DONE}
    assert translation.place(copy(0, seconds=1.5, name="new")) is Place.NEXT


def test_times_do_not_decide_for_a_partition_without_a_mark() -> None:
    half = marked(native(500, "0"))
    assert Translation(half, PARTITIONS).place(copy(3, "2")) is Place.UNSURE
    whole = joined([half, marked(native(400, "1"))])
    assert Translation(whole, PARTITIONS).place(copy(3, "2")) is Place.DONE
    # As far as the partition that has come less far.
    assert Translation(whole, PARTITIONS).place(copy(450, "2")) is Place.UNSURE
    assert Translation(whole, PARTITIONS).place(copy(506, "2")) is Place.NEXT
    with pytest.raises(JournalRefused, match="two marks have west/0"):
        joined([half, half])


def test_reading_a_copied_hub_starts_before_the_first_event_that_is_open() -> None:
    mark = marked(native(500, "0"), native(400, "1"), *(native(600, p, "east") for p in ("0", "1", "2")))
    translation = Translation(mark, PARTITIONS, allowance_seconds=10)
    begin = datetime.fromtimestamp(START + 390, UTC)
    assert translation.start("east") == dict.fromkeys(PARTITIONS["east"], begin)
    # east's own events were never read: they begin at the beginning.
    unread = marked(native(500, "0"), native(400, "1"))
    assert Translation(unread, PARTITIONS).start("east") == dict.fromkeys(PARTITIONS["east"], "-1")
    # Publishers have gone over to east after, or before, what west's mark says.
    for over, expected in ((700, 390), (395, 385)):
        quiet = {"east": datetime.fromtimestamp(START + over, UTC)}
        begin = datetime.fromtimestamp(START + expected, UTC)
        passive = Translation(unread, PARTITIONS, allowance_seconds=10, quiet_until=quiet)
        assert passive.start("east") == dict.fromkeys(PARTITIONS["east"], begin)
    with pytest.raises(JournalRefused, match="quiet_until of east has no time zone"):
        Translation(unread, PARTITIONS, quiet_until={"east": datetime(2026, 1, 1)})  # noqa: DTZ001 - that is the point
    with pytest.raises(JournalRefused, match="partitions of north are missing"):
        translation.start("north")


@pytest.mark.parametrize("seed", [*range(80), 1088])
def test_a_history_skips_nothing_and_takes_nothing_for_new_that_was_processed(seed: int) -> None:
    # 1088: of west, another partition was read, which has no part in this copy.
    history = MarkHistory(seed)
    history.run()
    assert history.objections() == [], history.log


def test_reading_starts_at_the_beginning_if_nothing_of_another_site_was_processed() -> None:
    quiet = {"east": datetime.fromtimestamp(START, UTC)}
    begin = Translation(Mark(), PARTITIONS, quiet_until=quiet).start("east")
    assert begin == dict.fromkeys(PARTITIONS["east"], "-1")


def test_copies_of_the_same_millisecond_are_known() -> None:
    batch = [replace(copy(n, "0", seconds=0), read_number=n, read_enqueued=START) for n in range(3)]
    again = Translation(marked(*batch), numbers_agree=True)
    assert [again.place(one) for one in batch] == [Place.DONE] * 3


@pytest.mark.parametrize("numbers_agree", [True, False])
def test_an_entity_that_was_created_again_has_its_numbers_again(numbers_agree: bool) -> None:
    mark = marked(*(native(n, "0") for n in range(100)))
    fresh = [native(n, "0", seconds=500 + n) for n in range(3)]
    translation = Translation(mark, {"west": ["0"], "east": ["0"]}, numbers_agree=numbers_agree)
    assert {translation.place(one) for one in fresh} == {Place.NEXT}
    assert {translation.place(copy(n, "0", seconds=500 + n)) for n in range(3)} == {Place.NEXT}
    again = Translation(mark.after(fresh[0]).after(fresh[1]), {"west": ["0"], "east": ["0"]})
    assert [again.place(one) for one in fresh] == [Place.DONE, Place.DONE, Place.NEXT]


def test_original_of_a_copy_that_did_not_say_when_it_was_sent_is_unsure() -> None:
    nameless = replace(copy(7, name="m7"), enqueued=None, read_number=1, read_enqueued=START + 8)
    assert Translation(marked(nameless)).place(native(7, name="m7")) is Place.UNSURE


@pytest.mark.parametrize("message_id", [7, b"\xff", UUID(int=7), "text"])
def test_ids_that_are_no_text_are_known(message_id: Any) -> None:
    sent = event("", 1, seconds=1)
    sent.message_id = message_id
    mark = marked(seen_event(sent, "west", "0"))
    copied = event("", 9, seconds=2, path="west", enqueue_time=datetime.fromtimestamp(START + 1, UTC).isoformat())
    copied.message_id = message_id
    assert Translation(mark).place(seen_event(copied, "east", "0")) is Place.DONE


def test_switch_back_knows_what_was_processed_elsewhere() -> None:
    over = marked(native(7, name="m7"), native(8, name="m8"))
    for seen in (copy(9, name="m9"), copy(10, name="m10"), native(1, site="east", seconds=20, name="e1")):
        over = over.after(seen)
    back = Translation(over, numbers_agree=True)
    assert [back.place(native(n, name=f"m{n}")) for n in range(7, 13)] == [Place.DONE] * 4 + [Place.NEXT] * 2
    assert back.place(copy(1, site="west", origin="east", seconds=20)) is Place.DONE
    by_time = Translation(over)
    assert [by_time.place(native(n, name=f"m{n}")) for n in range(7, 13)] == [Place.DONE] * 4 + [Place.NEXT] * 2


def test_marks_are_stored_and_moved_by_one_instance_each(store: Any) -> None:
    books = aio.Bookmarks(store.store, "shipping") if hasattr(store, "runner") else Bookmarks(store, "shipping")

    def call(answer: Any) -> Any:
        return store.runner.run(answer) if hasattr(store, "runner") else answer

    assert call(books.load("s")) == Mark()
    mark = marked(*(native(n, name="☃" * 128) for n in range(250)), copy(3, "1", name="b"))
    first = call(books.save("s", mark))
    assert call(books.load("s")) == first
    assert first.positions == mark.positions
    call(books.save("s", first.after(native(300))))
    with pytest.raises(Conflict):
        call(books.save("s", first.after(native(301))))
    with pytest.raises(Conflict):
        call(books.save("s", mark))
    assert call(books.load("other")) == Mark()


def test_malformed_mark_is_reported() -> None:
    store = new_store()
    books = Bookmarks(store, "c")
    books.save("s", marked(native(1)))
    store.write("k.c.s", [Write("mark", {"Open": 0, "Schema": 1, "Views": '["west/"]', "View0": "{}"})])
    with pytest.raises(JournalMalformed, match=r"k\.c\.s: the mark is not well formed"):
        books.load("s")
    store.write("k.c.s", [Write("mark", {"Open": 0, "Schema": 3})])
    with pytest.raises(JournalMalformed, match="has schema 3, expected 2"):
        books.load("s")


def event(name: str, number: int, *, seconds: float, **properties: Any) -> Any:
    """Return an event as the SDK gives it, with the body *name*."""
    stamps = {f"repl-{key.replace('_', '-')}".encode(): value.encode() for key, value in properties.items()}
    enqueued = datetime.fromtimestamp(START + seconds, UTC)
    return SimpleNamespace(
        message_id=name, sequence_number=number, enqueued_time=enqueued, properties=stamps, body=[name.encode()]
    )


def arrived(number: int, *, seconds: float, sent: float | None = None, name: str | None = None) -> Seen:
    """Return what a consumer in east sees of a copy of west's event *number*, which arrives after *seconds*."""
    time = datetime.fromtimestamp(START + (number if sent is None else sent), UTC).isoformat()
    name = name or f"order-{number}"
    copied = event(name, 1000 + number, seconds=seconds, path="west", sequence=str(number), enqueue_time=time)
    return seen_event(copied, "east", "0")


FORGED = {
    "far": {"sequence": "9223372036854775807", "enqueue_time": "9999-12-31T00:00:00Z"},
    "plausible": {"sequence": "400", "enqueue_time": datetime.fromtimestamp(START + 9, UTC).isoformat()},
    "next": {"sequence": "3", "enqueue_time": datetime.fromtimestamp(START + 3, UTC).isoformat()},
    "negative": {"sequence": "-1", "enqueue_time": "0001-01-01T00:00:00Z"},
    "no numbers": {"sequence": "x;y", "enqueue_time": "soon"},
}


@pytest.mark.parametrize("numbers_agree", [True, False])
@pytest.mark.parametrize("name", ["evil", "order-3", "order-4"])
@pytest.mark.parametrize("stamps", FORGED)
def test_a_forged_stamp_covers_no_other_message(stamps: str, name: str, *, numbers_agree: bool) -> None:
    """Any producer at east can write repl-* properties, and ids of messages that have not arrived."""
    forged = event(name, 1003, seconds=10, path="west", **FORGED[stamps])
    forged.body = [b"forged"]
    mark = marked(arrived(1, seconds=2), arrived(2, seconds=3), seen_event(forged, "east", "0"))
    store = new_store()
    books = Bookmarks(store, "c")
    books.save("0", mark)
    translation = Translation(books.load("0"), {"west": ["0"], "east": ["0"]}, numbers_agree=numbers_agree)
    for number in (3, 4, 100, 400, 500):
        # It comes after the forged one, in east; or is read as the original, after a switch back.
        late = replace(arrived(number, seconds=900, sent=number / 100 + 3), read_number=1004 + number)
        own = seen_event(event(f"order-{number}", number, seconds=number / 100 + 3), "west", "0")
        assert Place.DONE not in (translation.place(late), translation.place(own))
    assert [translation.place(arrived(number, seconds=number + 1)) for number in (1, 2)] == [Place.DONE] * 2
    # East's own events are not read yet.
    assert translation.start("east") == translation.start("west") == {"0": "-1"}
    quiet = {"east": datetime.fromtimestamp(START, UTC)}
    begin = Translation(mark, {"east": ["0"]}, quiet_until=quiet).start("east")["0"]
    assert isinstance(begin, datetime)
    assert begin.timestamp() <= START + 10


def test_a_copy_is_known_by_id_and_content_and_place() -> None:
    mark = marked(*(arrived(number, seconds=number + 1) for number in range(300)))
    again = Translation(mark, {"west": ["0"], "east": ["0"]})
    # By their place in east, also those whose ids are no longer kept.
    assert {again.place(arrived(number, seconds=number + 1)) for number in range(300)} == {Place.DONE}
    assert again.place(arrived(300, seconds=301)) is Place.NEXT
    back = [again.place(seen_event(event(f"order-{n}", n, seconds=n), "west", "0")) for n in range(310)]
    assert set(back[:100]) == {Place.UNSURE}
    assert set(back[100:300]) == {Place.DONE}
    # East had read up to 300 s: it cannot have had what was sent after that.
    assert set(back[306:]) == {Place.NEXT}
    edited = event("order-299", 299, seconds=299)
    edited.body = [b"another"]
    assert again.place(seen_event(edited, "west", "0")) is Place.UNSURE


def test_forged_origins_do_not_overflow_a_mark() -> None:
    mark = Mark()
    for number in range(3000):
        forged = event(f"m{number}", number, seconds=number, path=f"evil-{number % 1000}", sequence="1")
        mark = mark.after(seen_event(forged, "east", "0"))
    row = mark_row(mark)
    assert len(row.properties) < 252
    assert sum(2 * len(str(each)) for each in row.properties.values()) < 2**20


def test_the_positions_of_copies_in_a_mark_of_an_earlier_version_are_not_used() -> None:
    store = new_store()
    books = Bookmarks(store, "c")
    books.save("s", marked(native(1), copy(2)))
    [row] = store.read("k.c.s", ["mark"])
    store.write("k.c.s", [Write("mark", {**row.properties, "Schema": 1}, row.version)])
    assert list(books.load("s").positions) == ["west/"]


def test_hub_consumer_continues_in_the_copy_where_it_stopped() -> None:
    """Over the wire: events of west, their copies in east as Busway stamps them, a mark after the 30th."""
    hubs = [
        NamespaceConfig(name=site, hubs=(HubConfig(name="events", partition_count=1),)) for site in ("west", "east")
    ]
    with RunningBroker(hubs) as broker:
        publish(broker.connection_string("west"), [EventData(f"event {n}") for n in range(50)])
        mark = Mark()
        originals = received(broker.connection_string("west"), 50, "-1")
        for event in originals[:30]:
            mark = mark.after(seen_event(event, "west", "0"))
        copies = [copy_of(event) for event in originals]
        own = EventData("east's own")
        switched = datetime.now(UTC)
        publish(broker.connection_string("east"), [*copies, own])
        translation = Translation(
            mark, {"west": ["0"], "east": ["0"]}, numbers_agree=True, quiet_until={"east": switched}
        )
        start = translation.start("east")["0"]
        assert isinstance(start, datetime)
        seen = received(broker.connection_string("east"), 51, start)
        places = [translation.place(seen_event(event, "east", "0")) for event in seen]
    assert places == [Place.DONE] * 30 + [Place.NEXT] * 21
    assert [event.body_as_str() for event in seen[30:]] == [*(f"event {n}" for n in range(30, 50)), "east's own"]


def test_the_program_of_the_page_processes_each_event_once_over_a_switch_and_a_restart(
    tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hubs = [
        NamespaceConfig(name=site, hubs=(HubConfig(name="events", partition_count=2),)) for site in ("west", "east")
    ]
    with RunningBroker(hubs) as broker:
        west, east = (broker.connection_string(site) for site in ("west", "east"))
        for name, value in {"JOURNAL": tables, "WEST": west, "EAST": east}.items():
            monkeypatch.setenv(name, value)

        def run(site: str, switched: Any, count: int) -> list[Any]:
            monkeypatch.setenv("SITE", site)
            monkeypatch.setenv("SWITCHED", switched.isoformat())
            printed: queue.SimpleQueue[str] = queue.SimpleQueue()
            names: dict[str, Any] = {"print": lambda _, text, flush: printed.put(text if flush else "")}
            program = threading.Thread(target=exec, args=(PROGRAM, names), daemon=True)
            program.start()
            texts = [printed.get(timeout=30) for _ in range(count)]
            names["client"].close()
            program.join()
            names["store"].close()
            return sorted(texts)

        now = datetime.now(UTC)
        publish(west, [EventData(f"{n}") for n in range(4)])
        publish(west, [EventData(f"{n}") for n in range(4, 6)], "1")
        assert run("west", now, 6) == [f"{n}" for n in range(6)]
        publish(west, [EventData(f"{n}") for n in range(6, 8)])
        assert run("west", now, 2) == ["6", "7"]
        for partition, count in (("0", 6), ("1", 2)):
            originals = received(west, count, "-1", partition)
            publish(east, [copy_of(event) for event in originals], partition)
        switched = datetime.now(UTC)
        publish(east, [EventData("8")], "1")
        assert run("east", switched, 1) == ["8"]


def copy_of(event: Any) -> Any:
    """Return an event of west as Busway stamps it."""
    copied = EventData(event.body_as_str())
    stamp = event.enqueued_time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    copied.properties = {
        "repl-path": "west",
        "repl-sequence": str(event.sequence_number),
        "repl-enqueue-time": stamp,
    }
    return copied


def publish(connection_string: Any, events: Any, partition: str = "0") -> None:
    with EventHubProducerClient.from_connection_string(connection_string, eventhub_name="events") as producer:
        producer.send_batch(events, partition_id=partition)


def received(connection_string: Any, count: int, start: Any, partition: str = "0") -> Any:
    events: list[EventData] = []
    consumer = EventHubConsumerClient.from_connection_string(
        connection_string, consumer_group="$Default", eventhub_name="events"
    )

    def keep(_: Any, event: Any) -> None:
        events.append(event)
        if len(events) == count:
            threading.Thread(target=consumer.close).start()

    timer = threading.Timer(30, consumer.close)
    timer.start()
    with consumer:
        consumer.receive(keep, partition_id=partition, starting_position=start, starting_position_inclusive=True)
    timer.cancel()
    return events
