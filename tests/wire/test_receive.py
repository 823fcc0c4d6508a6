"""`busway receive` and `busway send`, in this process, against the local site.broker."""

import gzip
import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from azure.servicebus import ServiceBusMessage
from typer.testing import Result

from busway_broker.core.backlog import Counts
from busway_broker.core.event import read_event
from cli.message_lines import message_line
from cli.property_types import EXAMPLES, decimal
from shared.amqp import values
from shared.amqp.codec import encode
from shared.amqp.sections import data, split
from shared.amqp.values import Value
from tests.messages import delivered
from tests.site import Site

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


def content(identity: str, body: bytes = data(b"body"), **options: object) -> bytes:
    raw = split(delivered(None, message_id=identity, **options))  # type: ignore[arg-type] # as `delivered` has them
    raw.body = body
    return raw.encode()


ENTITIES = f"""
west:
  queues:
    {{{", ".join(f"q{number}: " for number in range(7))},
    short: {{lock_duration: 1, max_delivery_count: 1}}, sessions: {{requires_session: true}},
    listed: {{requires_session: true}}, onward: {{forward_to: q0}}}}
  hubs: {{hub: {{partition_count: 2}}, few: {{partition_count: 2}}}}
"""
TASK = "task: copy\nsource: {connection: west, queue: q0}\nroutes: [{target: {connection: west, queue: q1}}]\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("app"), ENTITIES, TASK) as site:
        yield site


def receive(site: Site, *arguments: str) -> Result:
    return site.run("receive", *arguments, "--wait", "0.5")


def test_every_body_is_printed_once_and_completed(site: Site) -> None:
    site.publish("west/q0", (content(name, body) for name, (body, _) in BODIES.items()))
    result = receive(site, "west/q0")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [f"{text}  message_id={name}" for name, (_, text) in BODIES.items()]
    assert site.active("west/q0") == 0


def test_every_event_is_printed_whatever_its_body(site: Site) -> None:
    events = [read_event(content(name, body)) for name, (body, _) in BODIES.items()]
    site.broker.inspect("west", lambda each: each.hub("hub").partitions[1].append(events))
    result = receive(site, "hub-west/hub")
    assert result.exit_code == 0, result.output
    expected = [f"{text}  partition=1 message_id={name}" for name, (_, text) in BODIES.items()]
    assert result.stdout.splitlines() == expected


def test_properties_of_every_type_are_printed(site: Site) -> None:
    named = {f"{kind}-{number}": value for kind, some in EXAMPLES.items() for number, value in enumerate(some)}
    site.publish("west/q1", [content("types", named=named)])
    listed, result = site.run("messages", "list", "west/q1", "--bodies"), receive(site, "west/q1")
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


def test_what_cannot_be_printed_is_given_back_without_an_attempt(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.publish("west/short", [content("a"), content("b")])
    with monkeypatch.context() as patch:
        patch.setattr("cli.commands.receive._show", broken_pipe)
        with pytest.raises(BrokenPipeError):
            receive(site, "west/short")
    found = site.broker.inspect("west", lambda each: [one.delivery_count for one in each.store("short").peek(0)])
    assert found == [0, 0]
    assert receive(site, "west/short").stdout.splitlines() == ["body  message_id=a", "body  message_id=b"]
    assert site.broker.counts("west")["short"].dead_lettered == 0


def broken_pipe(_: object) -> None:
    raise BrokenPipeError


def test_a_message_whose_completion_fails_is_not_printed_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.publish("west/q2", [content("a"), content("b")])
    printed: list[str] = []

    def slow(lines: Sequence[str]) -> None:
        printed.extend(lines)
        site.broker.faults("west").expire_locks("q2")

    monkeypatch.setattr("cli.commands.receive._show", slow)
    assert receive(site, "west/q2").exit_code == 0
    assert printed == ["body  message_id=a", "body  message_id=b"]
    assert site.active("west/q2") == 0


def test_locks_are_kept_while_the_reader_of_the_lines_waits(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.publish("west/short", [content("a")])
    monkeypatch.setattr("cli.commands.receive._show", lambda _: time.sleep(1.6))
    assert receive(site, "west/short").exit_code == 0
    assert site.broker.counts("west")["short"] == Counts(0, 0, 0, 0, 0)


def test_only_the_messages_of_a_session_are_listed_and_received(site: Site) -> None:
    site.publish("west/sessions", (content(name, session_id=name) for name in ("a", "b")))
    refused = receive(site, "west/sessions")
    assert (refused.exit_code, refused.stderr) == (1, "west/sessions: has sessions (name one: --session ID)\n")
    lines = [f"body  message_id={name} session_id={name}\n" for name in ("a", "b")]
    listed = site.run("messages", "list", "west/sessions", "--session", "b", "--bodies").stdout.splitlines()
    assert listed == ["west/sessions", "body  number=2 message_id=b session_id=b"]
    assert receive(site, "west/sessions", "--session", "b").stdout == lines[1]
    assert receive(site, "west/sessions", "--session", "b").stdout == "nothing in west/sessions\n"


def test_messages_are_listed_by_state_and_session_and_none_is_received(site: Site) -> None:
    site.publish("west/listed", (content(f"m{number}", session_id=f"s{number % 3}") for number in range(7)))
    with site.client("west").get_queue_sender("listed") as sender:
        later = ServiceBusMessage("body", message_id="later", session_id="s9")
        sender.schedule_messages(later, datetime.now(UTC) + timedelta(hours=1))
    listed = site.run("messages", "list", "west/listed")
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
    singly = site.run("messages", "list", "west/listed", "--each", "--session", "s9").stdout.splitlines()
    assert re.search(r" later +s9 +due \d\d-\d\d \d\d:\d\d UTC$", singly[-1])
    assert max(map(len, singly)) <= 80
    (group, *_) = json.loads(site.run("messages", "list", "west/listed", "--json").stdout)["groups"]
    assert (group["state"], group["session"], group["count"]) == ("active", "s0", 3)
    dropped = site.run("messages", "drop", "west/listed", "--session", "s1", "--yes")
    assert (dropped.exit_code, "2 dropped" in dropped.stdout) == (0, True), dropped.output
    assert site.active("west/listed") == 5


def test_the_partitions_of_a_hub_are_listed_and_its_events_if_asked_for(site: Site) -> None:
    site.broker.inspect("west", lambda each: each.hub("few").partitions[1].append([read_event(content("a"))] * 3))
    listed = site.run("messages", "list", "hub-west/few")
    assert listed.exit_code == 0, listed.output
    assert [line.split()[:4] for line in listed.stdout.splitlines()[2:]] == [["0", "0", "-", "-"], ["1", "3", "0", "2"]]
    assert site.run("messages", "list", "hub-west/few", "--bodies").stdout.count("message_id=a") == 3
    refused = site.run("messages", "list", "hub-west/few", "--each")
    assert (refused.exit_code, "the only option is --bodies" in refused.stderr) == (1, True)


def test_messages_are_dead_lettered_with_a_reason(site: Site) -> None:
    site.publish("west/q3", [content("a")])
    assert receive(site, "west/q3", "--dead-letter", "tired").stdout == "body  message_id=a\n"
    shown = receive(site, "west/q3/$DeadLetterQueue").stdout
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
def test_what_is_sent_is_what_was_typed(site: Site, given: str, shown: str) -> None:
    assert site.run("send", "west/q4", "x", "--id", "a", "--property", given).output == "1 sent to west/q4\n"
    assert receive(site, "west/q4").stdout == f"x  message_id=a {shown}\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["hub-west/hub", "x", "--session", "s"], "hub-west/hub: has no sessions (leave out --session"),
        (["west/sessions", "x", "--session", "s", "--key", "k"], "west/sessions: a message of a session has no other"),
        (["west/q5", "x", "--id", "i" * 129], "west/q5: "),
        (["west/q5", "x" * 2**20], "west/q5: "),
        (["west/q5", "\udcff"], "west/q5: a body, id or property is not UTF-8"),
        (["west/q5", "x", "--property", "p=\udcff"], "west/q5: a body, id or property is not UTF-8"),
        (["west/q5", "x", "--session", "s" * 200], "west/q5: "),
        (["west/sessions", "x"], "west/sessions: "),
    ],
)
def test_what_cannot_be_sent_is_refused_in_one_line(site: Site, arguments: list[str], problem: str) -> None:
    result = site.run("send", *arguments)
    lines = [line for line in result.stderr.splitlines() if "waits for its first answer" not in line]
    assert (result.exit_code, len(lines)) == (1, 1), result.output
    assert lines[0].startswith(problem)
    assert "Traceback" not in result.output


def test_of_several_bodies_those_that_were_sent_are_counted(site: Site) -> None:
    result = site.run("send", "west/q5", "x", "y" * 2**20, "z")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "2 of 3 sent to west/q5")
    shown = [line.partition("  message_id=") for line in receive(site, "west/q5").stdout.splitlines()]
    assert [body for body, _, _ in shown] == ["x", "z"]
    assert len({identity for _, _, identity in shown if len(identity) == len(str(uuid.uuid4()))}) == 2


def test_a_key_beside_its_session_is_sent(site: Site) -> None:
    assert site.run("send", "west/sessions", "x", "--session", "k", "--key", "k").exit_code == 0
    assert receive(site, "west/sessions", "--session", "k").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["west/nowhere"], "west/nowhere: it does not exist\n"),
        (["hub-west/nowhere"], "hub-west/nowhere: it does not exist\n"),
        (["west/q6", "--session", "s"], "west/q6: has no sessions (leave out --session)\n"),
        (
            ["hub-west/hub", "--session", "s"],
            "hub-west/hub: has no sessions (leave out --session; what --key",
        ),
        (["west/onward"], "west/onward: it forwards its messages, so that nobody can receive from it\n"),
    ],
)
def test_what_cannot_be_received_is_refused_in_one_line(site: Site, arguments: list[str], problem: str) -> None:
    result = receive(site, *arguments)
    lines = [line for line in result.stderr.splitlines() if "waits for its first answer" not in line]
    assert (result.exit_code, len(lines)) == (1, 1), result.output
    assert f"{lines[0]}\n".startswith(problem)
