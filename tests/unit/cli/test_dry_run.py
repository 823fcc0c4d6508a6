import base64
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.dry_run.messages import read_messages, save
from cli.dry_run.show import changes, diff_lines, view
from cli.main import app
from shared.amqp.codec import encode
from shared.amqp.values import binary, list_, long, string
from shared.errors import ConfigError
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.view import body_lines
from shared.testing import message
from tests.messages import delivered

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECRET = "4000 0566 5566 5556"


type RunTask = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> RunTask:
    """Return what runs `busway try` for a task with the given keys, on recorded messages."""

    def run_task(recorded: Sequence[Mapping[str, object]], **task: Any) -> Result:
        (tmp_path / "tasks").mkdir()
        connections = {name: {"kind": "service-bus", "setting": name.upper()} for name in ("west", "east")}
        connections["hub"] = {"kind": "event-hubs", "setting": "HUB"}
        (tmp_path / "connections.yaml").write_text(yaml.safe_dump(connections))
        document = {
            "task": "copy",
            "source": {"connection": "west", "queue": "orders"},
            "routes": [{"target": {"connection": "east", "queue": "copies"}}],
            **task,
        }
        (tmp_path / "tasks/copy.yaml").write_text(yaml.safe_dump(document))
        file = tmp_path / "messages.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in recorded))
        return CliRunner().invoke(app, ["try", "copy", "--config", str(tmp_path), "--messages", str(file)])

    return run_task


def ends(result: Result) -> list[str]:
    return [line.removeprefix("  → ") for line in result.output.splitlines() if line.startswith("  → ")]


def test_the_reason_why_a_message_would_be_withheld_is_shown(run: RunTask) -> None:
    recorded: list[dict[str, object]] = [
        {"body": "looped", "properties": {"repl-path": "east", "kind": "a"}},
        {"body": "expired", "time_to_live": 1, "enqueued_time": 1, "properties": {"kind": "a"}},
        {"body": "unrouted", "properties": {"kind": "b"}},
        {"body": "good", "properties": {"kind": "a"}},
    ]
    route = {"when": "kind = 'a'", "target": {"connection": "east", "queue": "copies"}}
    result = run(recorded, routes=[route], ttl="remaining")
    assert result.exit_code == 0, result.output
    assert ends(result) == [
        "would be withheld, looped: site east is on its path east",
        "would be withheld, expired: it expired before it could be sent",
        "would be withheld, filtered",
        "would be sent to east/copies",
    ]
    assert "  routes: no route takes it\n" in result.output


def test_an_undecodable_message_would_be_rejected(run: RunTask) -> None:
    result = run([{"raw": base64.b64encode(b"no AMQP").decode()}])
    assert result.exit_code == 1
    assert "message 1 of 1: 7 bytes that are not an AMQP message" in result.output
    assert ends(result)[0].startswith("would be rejected (received) and sent to west/orders/$DeadLetterQueue: ")


def test_many_rejected_messages_do_not_stop_a_dry_run(run: RunTask) -> None:
    result = run([{"body": "no JSON"}] * 60, editors=[{"reduce": {"drop": ["a"]}}])
    assert (result.exit_code, len(ends(result))) == (1, 60)


def test_events_of_other_partitions_are_skipped(run: RunTask) -> None:
    result = run(
        [{"body": "a", "partition": "0"}, {"body": "b", "partition": "1"}],
        source={"connection": "hub", "hub": "events", "consumer_group": "own", "partitions": [1]},
        rejects={"connection": "west", "queue": "rejects"},
    )
    assert result.exit_code == 0, result.output
    assert ends(result) == ["skipped: the task does not read this partition", "would be sent to east/copies"]


def test_a_missing_function_of_an_editor_is_reported(run: RunTask) -> None:
    result = run([{"body": "a"}], editors=[{"python": "nothing.of.mine:edit"}])
    assert (result.exit_code, "nothing.of.mine" in result.stderr) == (2, True)


def test_no_content_of_a_message_is_logged(run: RunTask, caplog: pytest.LogCaptureFixture) -> None:
    recorded = [{"body": SECRET, "properties": {"card": SECRET}}]
    with caplog.at_level(logging.DEBUG):
        result = run(recorded, editors=[{"reduce": {"drop": ["a"]}}])
    assert result.exit_code == 1
    assert SECRET not in caplog.text


def test_every_invalid_line_of_a_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    lines = [
        '{"body": "good"}',
        "{",
        "[]",
        '{"bodi": 1}',
        '{"raw": "?"}',
        '{"body": 1, "body_base64": ""}',
        '{"time_to_live": -1}',
        '{"sequence_number": 18446744073709551616}',
        '{"session_id": 5}',
        '{"properties": {"p": {"type": "int", "value": 4294967296}}}',
        '{"properties": []}',
        "[" * 100_000,
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError) as raised:
        read_messages(file, NOW)
    problems = [(problem.path.rsplit(" ", 1)[1], problem.problem) for problem in raised.value.problems]
    assert [line for line, _ in problems] == [str(n) for n in range(2, 13)]
    assert (problems[2][0], problems[2][1].partition(",")[0]) == ("4", "unknown key 'bodi'")
    file.write_text("\n")
    with pytest.raises(ConfigError, match="has no messages"):
        read_messages(file, NOW)
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_messages(file, NOW)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_messages(tmp_path / "gone", NOW)


def test_messages_are_saved_unchanged_and_unsent_ones_get_a_number(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(json.dumps({"body": {"n": 1}, "message_id": "a", "partition": "3", "session_id": "s"}) + "\n")
    (found,) = read_messages(file, NOW)
    read = Message.received(found.content, Origin("w", "q"))
    assert (read.body, read.session_id, read.arrival.sequence_number) == (b'{"n":1}', "s", 1)
    assert read.arrival.enqueued_time == 1_893_456_000_000
    save(file, [found])
    assert read_messages(file, NOW) == [found]
    # As a sender encodes it, without anything of the service's.
    file.write_text(json.dumps({"raw": base64.b64encode(message({"n": 1}).encode()).decode()}) + "\n")
    assert Message.received(read_messages(file, NOW)[0].content, Origin("w", "q")).arrival.sequence_number == 1


def test_json_is_shown_indented_with_every_digit() -> None:
    text = '{"n":1.10,"big":1e400,"a":[],"o":{},"l":[1,{"x":"é\\u0041, }"}],"d":1,"d":2}'
    assert body_lines(message(text)) == [
        "{",
        '  "n": 1.10,',
        '  "big": 1e400,',
        '  "a": [],',
        '  "o": {},',
        '  "l": [',
        "    1,",
        "    {",
        '      "x": "é\\u0041, }"',
        "    }",
        "  ],",
        '  "d": 1,',
        '  "d": 2',
        "}",
    ]


@pytest.mark.parametrize("text", ["", "plain text", '{"n": NaN}', "{'n': 1}", "a\tb", '{"half":"\\ud800"}'])
def test_text_is_shown_unchanged(text: str) -> None:
    assert body_lines(message(text)) == [text.replace("\t", "  ")]


DEEP = [b"[" * depth + b"]" * depth for depth in (500, 50_000)]


@pytest.mark.parametrize("content", [b"\x1b[2J", "\u202e".encode(), b"\xff" * 20, b"[" * 5_000 + b"\x00", *DEEP])
def test_no_body_is_too_deep_and_no_terminal_control_characters_are_shown(content: bytes) -> None:
    made = message(content, properties={"p\x1b": "\x1b[2J\u202e"}, subject="\x9b", message_id="\x07")
    assert body_lines(made)
    assert all(text.replace("\n", " ").isprintable() for pair in view(made).items() for text in pair)


def test_other_bodies_are_shown_with_their_kind() -> None:
    made = message()
    made.sections.body = b"\x00\x53\x77" + encode(list_([long(1), binary(b"\x01")]))
    assert body_lines(made) == ["(amqp-value) [1 (long), 01 (binary)]"]
    sequence = b"\x00\x53\x76"
    made.sections.body = sequence + encode(list_([long(1)])) + sequence + encode(list_([string("b")]))
    assert body_lines(made) == ["(amqp-sequence) [1 (long)]", '(amqp-sequence) ["b"]']
    made.sections.body = b"\x00\x53\x77" + encode(string('{"a":1}'))
    assert body_lines(made) == ["(amqp-value, string)", "{", '  "a": 1', "}"]
    as_value = view(made)
    made.body = b'{"a":1}'
    assert list(diff_lines(as_value, view(made)))[:3] == ["  body:", "    …", "-   (amqp-value, string)"]
    made.sections.body = b""
    assert body_lines(made) == ["(none)"]


def test_a_change_beyond_the_shown_part_is_reported() -> None:
    before, after = (view(message(b"\xff" * 1_000 + end)) for end in (b"a", b"b"))
    assert set(changes(before, after)) == {"body"}
    assert "more bytes, SHA-256" in before["body"]
    assert any(line.startswith("+   … 489 more bytes") for line in diff_lines(before, after))


def test_every_section_of_a_message_is_shown() -> None:
    made = Message.received(
        delivered(7, named={"p": long(1)}, annotated={"x-own": string("a")}, session_id="s", time_to_live=5),
        Origin("w", "q"),
    )
    made.correlation_id = string("c")
    shown = view(made)
    assert shown == {
        "durable": "true",
        "time-to-live": "5 (uint)",
        "message-id": '"m-7"',
        "correlation-id": '"c"',
        "session-id": '"s"',
        "annotation x-own": '"a"',
        "property p": "1 (long)",
        "body": "body",
    }
    made.sections.properties = b"\x00\x53\x73\xc0\x01"
    assert view(made)["message-id …"] == "(cannot be read)"
