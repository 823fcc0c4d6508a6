"""`busway receive` and `busway send`, in this process, against the local broker."""

import gzip
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner, Result

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.core.content import read_content
from busway_broker.core.entities import Counts
from busway_broker.core.event import read_event
from busway_broker.thread import RunningBroker
from cli.main import app
from cli.message_lines import message_line
from cli.property_types import EXAMPLES, decimal
from shared.amqp import values
from shared.amqp.codec import encode
from shared.amqp.sections import data, split
from shared.amqp.values import Value
from tests.messages import delivered

VALUE, SEQUENCE = b"\x00\x53\x77", b"\x00\x53\x76"
DATA_CONTRACT = b"@\x06string\x083http://schemas.microsoft.com/2003/10/Serialization/\x9a\x05hello\x01"
GZIP = gzip.compress(b"hello", mtime=0)
BODIES = {
    "text": (data("Grüße".encode()), "Grüße"),
    "gzip": (data(GZIP), f"{GZIP.hex(' ')} (binary)"),
    "utf16": (data("Data".encode("utf-16-le")[:-1] + b"\xff"), "44 00 61 00 74 00 61 ff (binary)"),
    "latin1": (data("Jürgen".encode("latin-1")), "4a fc 72 67 65 6e (binary)"),
    "datacontract": (data(DATA_CONTRACT), f"{DATA_CONTRACT.hex(' ')} (binary)"),
    "empty": (data(b""), ""),
    "value-string": (VALUE + encode(values.string("text")), "text (value, string)"),
    "value-map": (
        VALUE + encode(values.map_([(values.string("a"), decimal(Decimal("12.50")))])),
        '{"a": 12.50 (decimal128)} (value, map)',
    ),
    "value-bytes": (VALUE + encode(values.binary(b"\xff\x00")), "ff 00 (value, binary)"),
    "value-null": (VALUE + encode(values.NULL), "null (value, null)"),
    "value-int": (VALUE + encode(values.long(7)), "7 (value, long)"),
    "sequence": (
        SEQUENCE + encode(values.list_([values.long(1), values.string("b"), values.binary(b"\xff")])),
        '[1 (long), "b", ff (binary)] (sequence)',
    ),
}

type Run = Callable[..., Result]


def content(identity: str, body: bytes = data(b"body"), **options: object) -> bytes:
    raw = split(delivered(None, message_id=identity, **options))  # type: ignore[arg-type] # as `delivered` has them
    raw.body = body
    return raw.encode()


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    short = QueueConfig(name="short", lock_duration=timedelta(seconds=1), max_delivery_count=1)
    queues = [*(QueueConfig(name=f"q{number}") for number in range(20)), short]
    hubs = tuple(HubConfig(name=name, partition_count=2) for name in ("hub", "few"))
    others = [QueueConfig(name=name, requires_session=True) for name in ("sessions", "listed")]
    others += [QueueConfig(name="onward", forward_to="q0")]
    with RunningBroker([NamespaceConfig(name="west", queues=(*queues, *others), hubs=hubs)]) as running:
        yield running


@pytest.fixture
def run(broker: RunningBroker, tmp_path: Path) -> Run:
    (tmp_path / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: WEST}\nhubs: {kind: event-hubs, setting: WEST}\n"
    )

    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "copy.yaml").write_text(
        "task: copy\nsource: {connection: west, queue: q0}\nroutes: [{target: {connection: west, queue: q1}}]\n"
    )

    def run_command(*arguments: str) -> Result:
        wait = ["--wait", "0.5"] if arguments[0] == "receive" else []
        settings = {"WEST": broker.connection_string("west")}
        return CliRunner().invoke(app, [*arguments, *wait, "--config", str(tmp_path)], env=settings)

    return run_command


def put(broker: RunningBroker, queue: str, *contents: bytes) -> None:
    broker.inspect("west", lambda each: [each.target(queue).publish(read_content(one)) for one in contents])


def test_every_body_is_printed_once_and_completed(run: Run, broker: RunningBroker) -> None:
    put(broker, "q0", *(content(name, body) for name, (body, _) in BODIES.items()))
    result = run("receive", "west/q0")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [f"{text}  message_id={name}" for name, (_, text) in BODIES.items()]
    assert broker.counts("west")["q0"].active == 0


def test_every_event_is_printed_whatever_its_body(run: Run, broker: RunningBroker) -> None:
    events = [read_event(content(name, body)) for name, (body, _) in BODIES.items()]
    broker.inspect("west", lambda each: each.hub("hub").partitions[1].append(events))
    result = run("receive", "hubs/hub")
    assert result.exit_code == 0, result.output
    expected = [f"{text}  partition=1 message_id={name}" for name, (_, text) in BODIES.items()]
    assert result.stdout.splitlines() == expected


def test_properties_of_every_type_are_printed(run: Run, broker: RunningBroker) -> None:
    named = {f"{kind}-{number}": value for kind, some in EXAMPLES.items() for number, value in enumerate(some)}
    put(broker, "q1", content("types", named=named))
    listed, result = run("messages", "list", "west/q1", "--bodies"), run("receive", "west/q1")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    assert listed.stdout.replace(" number=1", "") == f"west/q1\n{result.stdout}"
    for shown in (
        "decimal-0=12.50 (decimal128)",
        "char-0=A (char)",
        'uri-0="https://example.com/orders?id=7#top" (uri)',
        "datetimeoffset-1=2022-09-28T22:13:20.0000001Z (datetime-offset)",
        "timespan-0=-00:00:00.0000001 (timespan)",
        "guid-0=00000000-0000-0000-0000-000000000000 (uuid)",
        "datetime-1=2023-11-14T22:13:20.123Z (timestamp)",
        "null-0=null",
    ):
        assert f" {shown}" in line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (values.string("7"), '"7"'),
        (values.long(7), "7"),
        (values.int_(7), "7"),
        (values.uint(7), "7 (uint)"),
        (values.string("true"), '"true"'),
        (values.TRUE, "true"),
        (values.string("12.50 (decimal128)"), '"12.50 (decimal128)"'),
        (values.string("plain text"), "plain text"),
        (values.string("[1]"), "[1]"),
    ],
)
def test_a_text_that_reads_as_another_value_is_in_quotes(value: Value, shown: str) -> None:
    assert message_line(content("a", named={"code": value})) == f"body  message_id=a code={shown}"
    assert message_line(content("a", named={"repl-sequence": values.string("7")})).endswith(" repl-sequence=7")


@pytest.mark.parametrize("broken", [b"\x00\x53\x74\xc1\x03\x02\xa1\x09", b"\x00\x53\x73\xc0\x02\x01\xff", b"\xff"])
def test_a_message_that_cannot_be_read_is_shown_in_full(broken: bytes) -> None:
    assert message_line(broken + data(b"x")) == f"{(broken + data(b'x')).hex(' ')} (cannot be read)"


def test_what_cannot_be_printed_is_given_back_without_an_attempt(
    run: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, "short", content("a"), content("b"))
    with monkeypatch.context() as patch:
        patch.setattr("cli.commands.receive._show", broken_pipe)
        assert run("receive", "west/short").exit_code != 0
    found = broker.inspect("west", lambda each: [one.delivery_count for one in each.store("short").peek(0)])
    assert found == [0, 0]
    assert run("receive", "west/short").stdout.splitlines() == ["body  message_id=a", "body  message_id=b"]
    assert broker.counts("west")["short"].dead_lettered == 0


def broken_pipe(_: object) -> None:
    raise BrokenPipeError


def test_a_message_whose_completion_fails_is_not_printed_again(
    run: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, "q2", content("a"), content("b"))
    printed: list[str] = []

    def slow(lines: Sequence[str]) -> None:
        printed.extend(lines)
        broker.faults("west").expire_locks("q2")

    monkeypatch.setattr("cli.commands.receive._show", slow)
    assert run("receive", "west/q2").exit_code == 0
    assert printed == ["body  message_id=a", "body  message_id=b"]
    assert broker.counts("west")["q2"].active == 0


def test_locks_are_kept_while_the_reader_of_the_lines_waits(
    run: Run, broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, "short", content("a"))
    monkeypatch.setattr("cli.commands.receive._show", lambda _: time.sleep(1.6))
    assert run("receive", "west/short").exit_code == 0
    assert broker.counts("west")["short"] == Counts(0, 0, 0, 0, 0)


def test_only_the_messages_of_a_session_are_listed_and_received(run: Run, broker: RunningBroker) -> None:
    put(broker, "sessions", *(content(name, session_id=name) for name in ("a", "b")))
    refused = run("receive", "west/sessions")
    assert (refused.exit_code, refused.stderr) == (1, "west/sessions: has sessions (name one: --session ID)\n")
    lines = [f"body  message_id={name} session_id={name}\n" for name in ("a", "b")]
    listed = run("messages", "list", "west/sessions", "--session", "b", "--bodies").stdout.splitlines()
    assert listed == ["west/sessions", "body  number=2 message_id=b session_id=b"]
    assert run("receive", "west/sessions", "--session", "b").stdout == lines[1]
    assert run("receive", "west/sessions", "--session", "b").stdout == "nothing in west/sessions\n"


def test_messages_are_listed_by_state_and_session_and_none_is_received(run: Run, broker: RunningBroker) -> None:
    put(broker, "listed", *(content(f"m{number}", session_id=f"s{number % 3}") for number in range(7)))
    client = ServiceBusClient.from_connection_string(broker.connection_string("west"))
    with client, client.get_queue_sender("listed") as sender:
        later = ServiceBusMessage("body", message_id="later", session_id="s9")
        sender.schedule_messages(later, datetime.now(UTC) + timedelta(hours=1))
    listed = run("messages", "list", "west/listed")
    assert listed.exit_code == 0, listed.output
    heading, columns, *rows = listed.stdout.splitlines()
    assert heading.startswith("west/listed: 8 messages, the oldest from ")
    assert columns.split() == ["count", "age", "state", "session"]
    assert [(row.split()[0], *row.split()[-2:]) for row in rows] == [
        ("3", "active", "s0"),
        ("2", "active", "s1"),
        ("2", "active", "s2"),
        ("1", "scheduled", "s9"),
    ]
    singly = run("messages", "list", "west/listed", "--each", "--session", "s9").stdout.splitlines()
    assert re.search(r" later +s9 +due \d\d-\d\d \d\d:\d\d UTC$", singly[-1])
    assert max(map(len, singly)) <= 80
    (group, *_) = json.loads(run("messages", "list", "west/listed", "--json").stdout)["groups"]
    assert (group["state"], group["session"], group["count"]) == ("active", "s0", 3)
    dropped = run("messages", "drop", "west/listed", "--session", "s1", "--yes")
    assert (dropped.exit_code, "2 dropped" in dropped.stdout) == (0, True), dropped.output
    assert broker.counts("west")["listed"].active == 5


def test_the_partitions_of_a_hub_are_listed_and_its_events_if_asked_for(run: Run, broker: RunningBroker) -> None:
    broker.inspect("west", lambda each: each.hub("few").partitions[1].append([read_event(content("a"))] * 3))
    listed = run("messages", "list", "hubs/few")
    assert listed.exit_code == 0, listed.output
    assert [line.split()[:4] for line in listed.stdout.splitlines()[2:]] == [["0", "0", "-", "-"], ["1", "3", "0", "2"]]
    assert run("messages", "list", "hubs/few", "--bodies").stdout.count("message_id=a") == 3
    refused = run("messages", "list", "hubs/few", "--each")
    assert (refused.exit_code, "the only option is --bodies" in refused.stderr) == (1, True)


def test_messages_are_dead_lettered_with_a_reason(run: Run, broker: RunningBroker) -> None:
    put(broker, "q3", content("a"))
    assert run("receive", "west/q3", "--dead-letter", "tired").stdout == "body  message_id=a\n"
    shown = run("receive", "west/q3/$DeadLetterQueue").stdout
    assert shown == "body  message_id=a DeadLetterReason=tired\n"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("code=7", "code=7"),
        ('code="7"', 'code="7"'),
        ("code=007", "code=007"),
        ("code=٣", "code=٣"),
        ("code=99999999999999999999", 'code="99999999999999999999"'),
        ('code="', 'code="'),
        ('code="a"b"', 'code="a"b"'),
        ("code=", "code="),
    ],
)
def test_what_is_sent_is_what_was_typed(run: Run, given: str, shown: str) -> None:
    assert run("send", "west/q4", "x", "--id", "a", "--property", given).output == "1 sent to west/q4\n"
    assert run("receive", "west/q4").stdout == f"x  message_id=a {shown}\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["hubs/hub", "x", "--session", "s"], "hubs/hub: has no sessions (leave out --session"),
        (["west/sessions", "x", "--session", "s", "--key", "k"], "west/sessions: a message of a session has no other"),
        (["west/q5", "x", "--id", "i" * 129], "west/q5: "),
        (["west/q5", "x" * 2**20], "west/q5: "),
        (["west/q5", "\udcff"], "west/q5: a body, id or property is not UTF-8"),
        (["west/q5", "x", "--property", "p=\udcff"], "west/q5: a body, id or property is not UTF-8"),
        (["west/q5", "x", "--session", "s" * 200], "west/q5: "),
        (["west/sessions", "x"], "west/sessions: "),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(run: Run, arguments: list[str], problem: str) -> None:
    result = run("send", *arguments)
    lines = [line for line in result.stderr.splitlines() if "waits for its first answer" not in line]
    assert (result.exit_code, len(lines)) == (1, 1), result.output
    assert lines[0].startswith(problem)
    assert "Traceback" not in result.output


def test_a_key_beside_its_session_is_sent(run: Run) -> None:
    assert run("send", "west/sessions", "x", "--session", "k", "--key", "k").exit_code == 0
    assert run("receive", "west/sessions", "--session", "k").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["west/nowhere"], "west/nowhere: it does not exist\n"),
        (["hubs/nowhere"], "hubs/nowhere: it does not exist\n"),
        (["west/q6", "--session", "s"], "west/q6: has no sessions (leave out --session)\n"),
        (["hubs/hub", "--session", "s"], "hubs/hub: has no sessions (leave out --session; what --key names stays"),
        (["west/onward"], "west/onward: it forwards its messages, so that nobody can receive from it\n"),
    ],
)
def test_what_cannot_be_received_is_refused_in_one_line(run: Run, arguments: list[str], problem: str) -> None:
    result = run("receive", *arguments)
    lines = [line for line in result.stderr.splitlines() if "waits for its first answer" not in line]
    assert (result.exit_code, len(lines)) == (1, 1), result.output
    assert f"{lines[0]}\n".startswith(problem)
