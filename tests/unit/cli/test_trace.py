"""`busway trace`, over journals that the product's own pipelines have written."""

import asyncio
import contextlib
import gzip
import json
import shutil
import socket
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import azure.functions as func
import msgspec
import pytest
from azure.storage.blob import ContainerClient
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from cli.hop_text import as_document, as_text
from cli.main import app
from functions.answers import answered
from functions.dead_letters import DeadLetterPages, choices
from shared.amqp import sections
from shared.amqp.values import Value, long, string, timestamp
from shared.clock import ManualClock
from shared.errors import TargetUnavailable
from shared.journal.hops import hops
from shared.journal.search import files_in, search
from shared.journal.task import TaskJournal
from shared.journal.trace_document import trace_document
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import Output
from shared.rules.rule import parse_filter
from shared.tasks.files import load
from tests.azurite import running_azurite
from tests.fakes import OutputThatAccepts, OutputThatIsDown, clock_at_delivery, sleep_by
from tests.memory_sink import MemorySink
from tests.messages import annotations, delivered

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[3] / "config/examples/all-active"


class Rename:
    """Gives the message another id and another body."""

    name = "rename"

    def edit(self, message: Message) -> Sequence[Message]:
        message.message_id = string("order-1-renamed")
        message.sections.body = sections.data(b"another body")
        return [message]


class Sites:
    """Tasks between sites, whose journals are files below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock: ManualClock = clock_at_delivery()
        self.sink = MemorySink()

    def carry(
        self,
        task: str,
        content: bytes,
        source: tuple[str, str],
        target: tuple[str, str],
        *,
        renames: bool = False,
        output: Output | None = None,
        times: int = 1,
        others: Sequence[Target] = (),
    ) -> bytes | None:
        """Let a task carry a batch with a message *times* times, and return what arrived at the target, or None."""
        self.clock.advance(0.25)
        accepting = OutputThatAccepts() if output is None else output
        journal = TaskJournal(task, self.sink, is_hub=False, is_required=True, clock=self.clock)
        made = Task(
            task,
            Origin(*source),
            [Rename()] if renames else [],
            Router([Route(Target(accepting, *target), parse_filter("unwanted IS NULL"), others=others)]),
            Target(OutputThatAccepts(), "west", "rejected"),
            Keep(),
            LoopGuard(),
            hold=timedelta(seconds=2),
        )
        with contextlib.suppress(TargetUnavailable):
            asyncio.run(Pipeline(made, journal, self.clock, sleep_by(self.clock)).run([content] * times))
        sent = accepting.accepted.get(target[1], []) if isinstance(accepting, OutputThatAccepts) else []
        return sent[0].content if sent else None

    def enqueued(self, content: bytes, number: int, named: Mapping[str, Value] | None = None) -> bytes:
        """Return *content* as an entity delivers it, with the sequence number *number*."""
        message = Message.received(content, Origin("x", "y"))
        message.set_properties(dict(named or {}))
        raw = sections.split(message.encode())
        now = round(self.clock.now().timestamp() * 1000)
        service = {"x-opt-sequence-number": long(number), "x-opt-enqueued-time": timestamp(now)}
        raw.message_annotations = annotations(service)
        return raw.encode()

    def write(self) -> Path:
        for stream, members in self.sink.members.items():
            hour = f"date={self.clock.now():%Y-%m-%d}/hour={self.clock.now():%H}"
            file = self.folder / f"task={stream.task}/{hour}/role={stream.role}/memory-0-1.jsonl.gz"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"".join(members))
        return self.folder

    @property
    def hour(self) -> str:
        return f"{self.clock.now():%Y-%m-%dT%H}"


@pytest.fixture
def three_hops(tmp_path: Path) -> Sites:
    """A message that goes from west to east, is renamed on the way to north, and is filtered there."""
    sites = Sites(tmp_path / "journal")
    others = [delivered(number, message_id=f"other-{number}") for number in range(30, 40)]
    for other in others:
        sites.carry("west-to-east", other, ("west", "orders"), ("east", "orders"))
    first = sites.carry("west-to-east", delivered(3, message_id="order-1"), ("west", "orders"), ("east", "orders"))
    again = sites.enqueued(first or b"", 30)
    second = sites.carry("east-to-north", again, ("east", "orders"), ("north", "orders"), renames=True)
    assert second is not None
    third = sites.enqueued(second, 5, {"unwanted": string("yes")})
    assert sites.carry("north-to-south", third, ("north", "orders"), ("south", "orders")) is None
    sites.write()
    return sites


def trace(sites: Sites, message_id: str, *options: str) -> Result:
    hours = ("--from", sites.hour, "--to", sites.hour)
    return CliRunner().invoke(app, ["trace", message_id, "--journal", str(sites.folder), *hours, *options])


def traced(sites: Sites, message_id: str, *options: str) -> str:
    sites.write()
    result = trace(sites, message_id, *options)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize("message_id", ["order-1", "order-1-renamed"])
def test_every_hop_is_shown_whichever_id_is_given(three_hops: Sites, message_id: str) -> None:
    text = traced(three_hops, message_id)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert words.startswith(f"{message_id}: 3 hops. At ")
    assert "north-to-south filtered it" in words.partition("1. west-to-east")[0]
    first, second = words.index("1. west-to-east: west/orders, sequence number 3"), words.index("2. east-to-north")
    assert first < words.index("sent it, and east/orders accepted it") < second
    assert "an editor changed the body, 4 to 12 bytes" in words
    assert "the message id became order-1-renamed" in words
    assert words.index("3. north-to-south: north/orders, sequence number 5") > second
    assert "+250 ms" in words
    assert "other-" not in text


def test_json_has_the_records_as_the_journal_has_them(three_hops: Sites) -> None:
    document = json.loads(traced(three_hops, "order-1", "--json"))
    assert [(hop["task"], hop["sequence_number"]) for hop in document["hops"]] == [
        ("west-to-east", 3),
        ("east-to-north", 30),
        ("north-to-south", 5),
    ]
    assert [[each["outcome"] for each in hop["records"]] for hop in document["hops"]] == [
        ["received", "sent"],
        ["received", "sent"],
        ["received", "filtered"],
    ]


def test_a_message_without_an_outcome_is_reported_as_such(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "journal")
    held = delivered(1, message_id="held")
    sites.carry("copy", held, ("west", "orders"), ("east", "orders"), output=OutputThatIsDown())
    stream = next(member for member in sites.sink.members if member.role == "target")
    assert "copy could not send it, and will retry" in " ".join(traced(sites, "held").split())
    del sites.sink.members[stream]
    (tmp_path / "journal").rename(tmp_path / "before")
    assert "held: 1 hop. copy has no outcome on record" in " ".join(traced(sites, "held").split())


def test_a_message_that_is_delivered_again_is_not_sent_again(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "journal")
    sites.carry("copy", delivered(1, message_id="twice"), ("west", "orders"), ("east", "orders"), times=2)
    text = " ".join(traced(sites, "twice").split())
    assert "copy did not send it again: the target had accepted it before" in text
    assert "None" not in text


def test_the_end_of_a_message_names_each_of_its_targets(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "journal")
    others = [Target(OutputThatAccepts(), "north", "orders"), Target(OutputThatIsDown(), "south", "orders")]
    sites.carry("fan", delivered(1, message_id="three"), ("west", "orders"), ("east", "orders"), others=others)
    end = " ".join(traced(sites, "three").split()).partition("1. fan")[0]
    for number, text in enumerate(("sent it, and east/orders accepted it", "sent it, and north/orders accepted it")):
        assert f"{text}; part or target {number}" in end
    assert "will retry at south/orders" in end


@pytest.mark.parametrize(("name", "other"), [("before", "after"), ("after", "before")])
def test_a_number_that_begins_again_belongs_to_two_messages(tmp_path: Path, name: str, other: str) -> None:
    """The entity was created again, or its alias leads to another namespace: only one of the two failed."""
    sites = Sites(tmp_path / "journal")
    for instance, message_id, output in (("a-1", "before", None), ("b-1", "after", OutputThatIsDown())):
        sites.sink.instance = instance
        sites.clock.advance(60)
        message = sites.enqueued(delivered(1, message_id=message_id), 1)
        sites.carry("copy", message, ("west", "orders"), ("east", "orders"), output=output)
    text = " ".join(traced(sites, name).split())
    assert other not in text.replace("journal", "")
    assert ("accepted it" in text, "will retry" in text) == ((True, False) if name == "before" else (False, True))


def test_an_unknown_id_is_not_found(three_hops: Sites) -> None:
    hour, result = three_hops.hour, trace(three_hops, "order")
    assert (result.exit_code, result.stdout) == (1, f"order: no record in 6 journal files, {hour} to {hour}\n")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--from", "yesterday"], "--from: got 'yesterday' (expected a day or an hour in UTC"),
        (["--from", "2026-11-20", "--to", "2026-11-19"], "2026-11-20T00 to 2026-11-19T23: has 0 hours"),
        (["--from", "1970-01-01"], "at most 400 days"),
        (["--config", str(EXAMPLE)], "names no blob container"),
    ],
)
def test_wrong_hours_and_a_missing_journal_are_reported(tmp_path: Path, options: list[str], problem: str) -> None:
    journal = [] if "--config" in options else ["--journal", str(tmp_path)]
    result = CliRunner().invoke(app, ["trace", "m", *journal, *options])
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_damaged_file_is_reported_and_the_others_are_read(three_hops: Sites) -> None:
    (file,) = three_hops.folder.glob("task=east-to-north/*/*/role=target/*")
    file.write_bytes(file.read_bytes()[:-20])
    result = trace(three_hops, "order-1")
    assert result.exit_code == 0
    assert f"{file}: damaged, EOFError" in result.stderr
    assert "west-to-east" in result.stdout


def altered(record: Mapping[str, Any], **values: object) -> bytes:
    return json.dumps({**record, **values}, separators=(",", ":")).encode()


GOOD = {
    "v": 1,
    "task": "copy",
    "role": "source",
    "observer": "task",
    "instance": "i",
    "batch_id": 1,
    "journal_time": 1_800_000_000_000_000,
    "outcome": "received",
    "src_site": "west",
    "src_entity": "orders",
    "src_seq": 7,
    "message_id": "order-1",
}
NO_RECORD = "has lines that are no records of a journal"
DAMAGED = "damaged, too large for its bytes"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (altered({name: value for name, value in GOOD.items() if name != "task"}), NO_RECORD),
        (altered(GOOD, observer=None), NO_RECORD),
        (altered(GOOD, observer="somebody"), NO_RECORD),
        (altered(GOOD, outcome="won"), NO_RECORD),
        (altered(GOOD, journal_time="x"), NO_RECORD),
        (altered(GOOD, journal_time=10**18), NO_RECORD),
        (altered(GOOD, journal_time=True), NO_RECORD),
        (altered(GOOD, src_seq=10**400), NO_RECORD),
        (altered(GOOD, src_part=[1]), NO_RECORD),
        (altered(GOOD, message_id="order-1", src_entity={"a": "b"}), NO_RECORD),
        (altered(GOOD, hops="west"), NO_RECORD),
        (altered(GOOD)[:-1] + b',"hops":' + b"[" * 100_000, NO_RECORD),
        (altered(GOOD)[:-1] + b',"src_part":%b}' % (b"9" * 5000), NO_RECORD),
        (altered(GOOD, outcome="gap"), None),
        (altered(GOOD, hops=None, enqueued_time=-(2**63), places=[1], attempt=-1), None),
        (bytes(100 << 20), DAMAGED),
        (b'"message_id":"order-1"' * 100_000, DAMAGED),
        ((altered(GOOD, message_id="order-2") + b"\n") * 100_000, DAMAGED),
        (b"\n".join(altered(GOOD, src_seq=number) for number in range(10_100)), "more than 10,000 records"),
        (
            b"\n".join(
                altered(GOOD, src_seq=number // 2, message_id=f"order-{(number + 1) // 2 + 1}")
                for number in reversed(range(120))
            ),
            "lead to ever more others",
        ),
    ],
)
def test_whatever_somebody_writes_into_a_journal_the_records_of_others_are_shown(
    three_hops: Sites, text: bytes, problem: str | None
) -> None:
    (file,) = three_hops.folder.glob("task=west-to-east/*/*/role=source/*")
    (file.parent / "a-0-1.jsonl.gz").write_bytes(gzip.compress(text + b"\n", 9))
    tracemalloc.start()
    found = search(files_in(three_hops.folder, [three_hops.hour]), "order-1")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20
    assert [problem in each for each in found.problems] == [True] if problem else found.problems == []
    way = hops(found.records)
    msgspec.json.encode(trace_document("order-1", [three_hops.hour], way, found.problems))
    for show in (as_text, as_document):
        assert "west-to-east" in show("order-1", way, "") or "more than" in (problem or "")


def test_a_hostile_id_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "journal")
    name = "a\x1b[2J\x9b\nb"
    sites.carry("copy", delivered(1, message_id=name), ("west", "orders"), ("east", "orders"))
    text = traced(sites, name)
    assert not set("\x1b\x9b") & set(text)
    assert "1 hop" in text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_id_is_found_in_what_the_journal_wrote(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    sites = Sites(tmp_path_factory.mktemp("journal"))
    sites.carry("copy", delivered(1, message_id=name), ("west", "orders"), ("east", "orders"))
    sites.carry("copy", delivered(2, message_id=f"{name}2"), ("west", "orders"), ("east", "orders"))
    found = search(files_in(sites.write(), [sites.hour]), name)
    assert [(hop.place.sequence_number, len(hop.records)) for hop in hops(found.records)] == [(1, 2)]


def uploaded(sites: Sites, storage: str, name: str, config: Path) -> Path:
    """Upload the journals to a container, and return a configuration that names it."""
    client = ContainerClient.from_connection_string(storage, name)
    client.create_container()
    for file in sites.folder.rglob("*.gz"):
        client.upload_blob(str(file.relative_to(sites.folder)), file.read_bytes())
    shutil.copytree(EXAMPLE, config)
    (config / "journal.yaml").write_text(f"blob: {{setting: JOURNAL, container: {name}}}\n")
    return config


def test_the_journal_of_a_container_is_downloaded_once_and_read_again_without_the_storage(
    three_hops: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUSWAY_SILENCE_SECONDS", "0.1")
    with running_azurite(tmp_path) as storage:
        config = uploaded(three_hops, storage, "journal", tmp_path / "config")
        monkeypatch.setenv("JOURNAL", storage)
        arguments = ["trace", "order-1", "--config", str(config), "--from", three_hops.hour, "--to", three_hops.hour]
        first = CliRunner().invoke(app, arguments)
        assert "order-1: 3 hops." in first.stdout, first.output
        files = list((tmp_path / "build/trace").rglob("*.gz"))
        assert len(files) == 6
        assert all(file.stat().st_mode & 0o077 == 0 for file in files)
        times = [file.stat().st_mtime_ns for file in files]
        assert CliRunner().invoke(app, arguments).stdout == first.stdout
        assert [file.stat().st_mtime_ns for file in files] == times
    with socket.create_server(("127.0.0.1", int(storage.rpartition(":")[2].split("/")[0]))):
        started = time.monotonic()
        found = CliRunner().invoke(app, arguments)
        assert time.monotonic() - started < 10
        nothing = CliRunner().invoke(app, [*arguments[:-1], "2020-01-01T00", "--from", "2020-01-01T00"])
    assert (found.exit_code, found.stdout) == (2, first.stdout)
    assert "busway trace: waits for " in found.stderr
    assert "from files that an earlier trace has downloaded" in found.stderr
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert "/journal: ServiceResponseTimeoutError" in nothing.stderr


def test_the_dashboard_finds_the_same_hops_in_the_container(
    three_hops: Sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_azurite(tmp_path) as storage:
        config = uploaded(three_hops, storage, "journal", tmp_path / "config")
        check_pages(three_hops, DeadLetterPages(load(config), {"JOURNAL": storage}, choices({})), monkeypatch)


def check_pages(three_hops: Sites, pages: DeadLetterPages, monkeypatch: pytest.MonkeyPatch) -> None:

    def traced(**parameters: str) -> tuple[int, dict[str, Any]]:
        request = func.HttpRequest("GET", "/api/status/trace", params=parameters, body=b"")
        answer = asyncio.run(answered(pages.trace, request))
        return answer.status_code, json.loads(answer.get_body())

    code, found = traced(id="order-1-renamed", **{"from": three_hops.hour, "hours": "2"})
    assert code == 200
    assert [(hop["task"], hop["outcome"]) for hop in found["hops"]] == [
        (hop.place.task, hop.outcome["outcome"])
        for hop in hops(search(files_in(three_hops.folder, [three_hops.hour]), "order-1").records)
        if hop.outcome is not None
    ]
    assert [step["outcome"] for step in found["hops"][0]["steps"]][:2] == ["received", "sent"]
    assert any("message id became order-1-renamed" in each for hop in found["hops"] for each in hop["changes"])
    assert (found["first_hour"], found["problems"]) == (three_hops.hour, [])
    assert traced(id="order-1", **{"from": "yesterday"})[0] == 400
    assert traced(id="order-1", hours="25")[0] == 400
    assert traced(id="")[0] == 400
    monkeypatch.setattr("shared.journal.trace_document.MOST_BYTES", 10)
    code, refused = traced(id="order-1", **{"from": three_hops.hour})
    assert (code, "search fewer hours, or run busway trace" in refused["error"]) == (503, True)
