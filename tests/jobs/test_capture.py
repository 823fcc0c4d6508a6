"""A journal in an event hub: the files of Capture become the files of a journal in blobs."""

import gzip
import io
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import fastavro
import pytest
from azure.storage.blob import ContainerClient

from busway_reconcile.journal.hours import hour_of
from busway_reconcile.read.capture import CAPTURED, Captured, Kept, convert, not_captured
from busway_reconcile.read.files import journal_files
from busway_reconcile.read.staging import stage
from busway_reconcile.storage import StoredFile
from tests.azurite import blob_account
from tests.jobs.journals import HOUR, START, Journals

events = pytest.importorskip("shared.journal.event_hub", reason="needs the packages of the app").events
compressed = pytest.importorskip("shared.journal.lines", reason="needs the packages of the app").compressed

WHERE = "hubs/journal/0/2026/11/20/00/15/00.avro"
NULLABLE = ["long", "double", "string", "bytes"]
# What Capture writes (Event Hubs documentation, "Exploring captured Avro files").
SCHEMA = {
    "type": "record", "name": "EventData", "namespace": "Microsoft.ServiceBus.Messaging",
    "fields": [
        {"name": "SequenceNumber", "type": "long"},
        {"name": "Offset", "type": "string"},
        {"name": "EnqueuedTimeUtc", "type": "string"},
        {"name": "SystemProperties", "type": {"type": "map", "values": NULLABLE}},
        {"name": "Properties", "type": {"type": "map", "values": [*NULLABLE, "null"]}},
        {"name": "Body", "type": ["null", "bytes"]},
    ],
}  # fmt: skip


def avro(bodies: Iterable[bytes | None], codec: str = "null") -> bytes:
    """Return a file of Capture with an event for each of *bodies*."""
    stream = io.BytesIO()
    rows = [
        {
            "SequenceNumber": number, "Offset": str(40 * number), "EnqueuedTimeUtc": "11/20/2026 12:10:00 AM",
            "SystemProperties": {"x-opt-enqueued-time": 1}, "Properties": {}, "Body": body,
        }
        for number, body in enumerate(bodies)
    ]  # fmt: skip
    fastavro.writer(stream, fastavro.parse_schema(SCHEMA), rows, codec=codec)
    return stream.getvalue()


def journals() -> Journals:
    """Return a task's records in two hours."""
    made = Journals()
    for number in range(40):
        at = START + number * HOUR / 20
        made.carried(1 + number, at)
    return made


def sent(made: Journals, limit: int = 180_000) -> list[bytes]:
    """Return the bodies of the events that the binding makes of a batch of all records, in as many as *limit* asks."""
    members = [compressed(json.dumps(record).encode() + b"\n") for _, record in made.records]
    given = events(members, limit)
    return [given] if isinstance(given, bytes) else [text.encode() for text in given]


def lines(files: Mapping[str, bytes]) -> list[bytes]:
    return sorted(line for content in files.values() for line in gzip.decompress(content).splitlines())


def expected(made: Journals) -> list[bytes]:
    return sorted(json.dumps(record).encode() for _, record in made.records)


@pytest.mark.parametrize("limit", [180_000, 4_000])
@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_the_files_hold_each_record_once_by_side_and_hour(limit: int, codec: str) -> None:
    made = journals()
    bodies = sent(made, limit)
    files, kept = convert(avro(bodies, codec), WHERE)
    assert kept.problems == []
    assert lines(files) == expected(made)
    assert (len(bodies) > 1) == (limit == 4_000)
    read, odd = journal_files(StoredFile(f"/journal/{name}", 1, 0) for name in files)
    assert odd == []
    assert sorted((file.task, file.hour, file.role) for file in read) == [
        (made.task, f"2026-11-20T0{hour}", role) for hour in (0, 1) for role in ("source", "target")
    ]


def test_a_torn_file_gives_its_whole_records_and_the_hours_that_are_unreliable() -> None:
    bodies = [body for _ in range(4) for body in sent(journals())]
    stream = io.BytesIO()
    rows = [{"Body": body} for body in bodies]
    schema = {**SCHEMA, "fields": SCHEMA["fields"][-1:]}
    fastavro.writer(stream, fastavro.parse_schema(schema), rows, sync_interval=100)
    files, kept = convert(stream.getvalue()[:-300], WHERE)
    assert lines(files)
    assert {(problem.kind, problem.where, problem.role) for problem in kept.problems} == {
        ("torn-file", WHERE, "source"),
        ("torn-file", WHERE, "target"),
    }
    assert {problem.hours for problem in kept.problems} == {("2026-11-20T00", "2026-11-20T01")}


@pytest.mark.parametrize(
    "content",
    [b"", b"Obj\x01", b"<!doctype html>", avro([b"{}"]), avro([None]), avro([b"\x1f\x8bno"]), avro([b"AAAA"]),
     avro([compressed(b'{"task": "../x", "role": "source", "journal_time": 1}\nno\n[]\n')]),
     avro([compressed(b'{"task": "t", "role": "source", "journal_time": 1e300}\n')])],
)  # fmt: skip
def test_content_that_is_not_a_journal_is_reported(content: bytes) -> None:
    files, kept = convert(content, WHERE)
    assert files == {}
    assert {(problem.kind, problem.where) for problem in kept.problems} == {("torn-file", WHERE)}


def test_a_container_is_downloaded_once_and_its_problems_are_kept(tmp_path: Path) -> None:
    made = journals()
    with ContainerClient.from_connection_string(blob_account(), "captured") as container:
        container.create_container()
        container.upload_blob(f"all/{WHERE}", avro(sent(made)))
        container.upload_blob("all/torn.avro", b"Obj")
        container.upload_blob("other/0.avro", avro(sent(made)))
        folder = tmp_path / "journal"
        assert stage(container, "all", folder) == 2
        files = {path: path.stat().st_mtime_ns for path in folder.rglob("*.gz")}
        assert lines({str(path): path.read_bytes() for path in files}) == expected(made)
        problems = [
            problem for path in (folder / CAPTURED).iterdir() for problem in Kept.from_json(path.read_text()).problems
        ]
        assert [(problem.where, problem.hours) for problem in problems] == [
            ("all/torn.avro", (hour_of(datetime.now(UTC)),))
        ]
        assert stage(container, "all", folder) == 0
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.gz")} == files
        assert stage(container, "all", tmp_path / "later", hours=[hour_of(datetime.now(UTC) + 2 * HOUR)]) == 0


def captured(partition: int, time: str, *numbers: int) -> Captured:
    """Return a file whose window ended at *time* (day/hour/minute of November 2026)."""
    where = f"hubs/journal/{partition}/2026/11/{time}/00.avro"
    return Captured(where, numbers[0], numbers[-1]) if numbers else Captured(where, None, None)


MIDNIGHT = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("files", "hours"),
    [
        ([captured(0, "20/22/15", 1, 9), captured(0, "21/00/05", 10, 12)], []),
        # Capture has a later file, but not yet what came before it.
        (
            [captured(0, "20/21/55", 1, 9), captured(0, "21/00/05", 20, 22)],
            [("2026-11-20T21", "2026-11-20T22", "2026-11-20T23", "2026-11-21T00")],
        ),
        # The partition that stays behind, where empty files are written.
        (
            [captured(0, "20/22/55", 1, 9), captured(0, "21/00/05"), captured(1, "20/22/55")],
            [("2026-11-20T22", "2026-11-20T23")],
        ),
        # Without empty files a quiet partition and a late one look alike.
        ([captured(0, "20/22/55", 1, 9), captured(1, "20/21/55", 1, 2)], []),
        # The hub was created again.
        ([captured(0, "20/22/15", 7, 9), captured(0, "21/00/05", 0, 2)], []),
        # A name of another format says nothing about its time.
        ([Captured("all/torn.avro", None, None)], []),
    ],
)
def test_what_is_not_captured_yet_is_undecided(files: list[Captured], hours: list[tuple[str, ...]]) -> None:
    """EH63: if its storage is away Capture writes later."""
    found = not_captured(reversed(files), MIDNIGHT)
    assert [problem.hours for problem in found] == hours
    assert {problem.kind for problem in found} <= {"not-captured"}
