"""What commands print of messages does not act on the terminal."""

import contextlib
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cli.main import app
from cli.message_lines import message_line
from cli.output import broken_silence, print_problems
from cli.topology.config_json import document_of
from cli.topology.model import Entity, Kind, Name, Namespace
from cli.topology.plan_text import quoted
from shared.amqp.values import string
from shared.errors import ConfigError
from shared.printable import printable
from tests.messages import delivered

# Categories of controls, formats (which include directions of writing), and separators of lines and paragraphs.
ACTING = {"Cc", "Cf", "Zl", "Zp", "Cs"}


@given(st.text())
def test_no_character_acts_on_a_terminal(text: str) -> None:
    assert not ACTING & {unicodedata.category(each) for each in printable(text)}
    if not ACTING & {unicodedata.category(each) for each in text}:
        assert all(each in printable(text) for each in text if each.isprintable())


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("grün €", "grün €"),
        ("\x1b]8;;http://x\x07a", r"\x1b]8;;http://x\x07a"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb", r"a\u202eb"),
        ("a\nb\r", r"a\nb\r"),
    ],
)
def test_bodies_names_and_values_of_received_messages_are_escaped(text: str, printed: str) -> None:
    assert printable(text) == printed
    line = message_line(delivered(None, body=text.encode(), message_id=text, named={text: string("value")}))
    assert line == f"{printed}  message_id={printed} {printed}=value"


def test_problems_quote_nothing_that_acts(capsys: pytest.CaptureFixture[str]) -> None:
    print_problems(["a \x1b[2J\x9b\nb \u202e"])
    assert capsys.readouterr().err == "a \\x1b[2J\\x9b\nb \\u202e\n"


def test_an_output_on_a_full_disk_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with (
            broken_silence(lambda: "receive"),
            pytest.raises(ConfigError, match="the output: cannot be written: No space"),
        ):
            typer.echo("a message")
        with contextlib.suppress(OSError):
            full.close()


ACTING_TEXT = "a\x9b2J\u202e\x85\u2028\x1b]8;;b"


def test_what_a_service_has_is_escaped_in_exports_and_commands() -> None:
    entity = Entity(Name(Kind.QUEUE, ("orders",)), {"user_metadata": ACTING_TEXT})
    document = document_of(Namespace([entity]))
    assert document.replace("\n", "").isprintable()
    assert quoted("it's") == "'it'\"'\"'s'"
    word = quoted(f"it's \\ {ACTING_TEXT}")
    assert word.isprintable()
    said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, env={"LC_ALL": "C.UTF-8"})  # noqa: S603, S607, PLW1510 - ours
    assert said.stdout.decode() == f"it's \\ {ACTING_TEXT}"


def write_task(folder: Path, when: str) -> None:
    (folder / "tasks").mkdir()
    connections = "w: {kind: service-bus, setting: W}\ne: {kind: service-bus, setting: E}\n"
    (folder / "connections.yaml").write_text(connections)
    route = f"{{when: {json.dumps(when)}, target: {{connection: e, queue: q}}}}"
    (folder / "tasks/copy.yaml").write_text(f"task: copy\nsource: {{connection: w, queue: q}}\nroutes: [{route}]\n")


def test_check_prints_names_that_act_with_escapes(tmp_path: Path) -> None:
    write_task(tmp_path, f"x = '{ACTING_TEXT}'")
    result = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert "when x = 'a" in result.stdout
    assert (result.stdout + result.stderr).replace("\n", "").isprintable()


def test_lines_of_a_repair_quote_nothing_that_acts(tmp_path: Path) -> None:
    rows = [{"task": "x\x1b[2J\n", "src_site": "w", "src_entity": "o", "message_id": "m\x9b\u2028", "copies": 0}]
    (tmp_path / "repair.jsonl").write_text(
        "".join(json.dumps(each) + "\n" for each in ({"manifest": 1, "messages": 1, "missing": 1}, *rows))
    )
    write_task(tmp_path, "x = 1")
    settings = dict.fromkeys(("W", "E"), "Endpoint=sb://127.0.0.1;SharedAccessKeyName=a;SharedAccessKey=b")
    command = ["repair", str(tmp_path / "repair.jsonl"), "--config", str(tmp_path)]
    result = CliRunner().invoke(app, command, env=settings)
    assert not ACTING & {unicodedata.category(each) for each in result.output.replace("\n", "")}
    assert "\\x9b" in result.output
