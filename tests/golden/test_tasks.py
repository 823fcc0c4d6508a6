"""
Runs task files: received messages, outcomes, sent messages and journal lines, one case per file.

A case has a task, or names a task file (`file`) or a configuration folder (`folder`) of the repository, and steps.
`connections` replace those of the repository. `files` are the other files of the configuration folder, as text, JSON or
bytes (!!binary, as for bodies). `settings` are app settings: `{keys: [{kind: oct, kid: ID}]}` are generated for the
run, and `{file: NAME}` is in a separate folder.

A step delivers messages to one task, from one `partition` if it has any, and lists the outcomes. A message is written
out, or `taken` from the entity to which an earlier step sent it (the next one, or the one `at` an index). `refuses`
lists, by connection, the ids of messages that the target refuses in this step.

Expected messages are compared by the keys in the case, their application properties as a whole.
`{matches: EXPRESSION}` matches text that differs in each run.
"""

import asyncio
import json
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.amqp.values import NULL, Value, binary, boolean, double, int_, long, string, timestamp
from shared.assembly.pipelines import assemble
from shared.clock import ManualClock
from shared.journal.log import LogJournal
from shared.line.pipeline import Pipeline
from shared.message.message import Message
from shared.protocols import Outgoing
from shared.tasks.files import load
from tests.fakes import SOMEWHERE, OutputThatRejects, sleep_by
from tests.keys import jwks, made
from tests.messages import ENQUEUED, delivered

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases"
TEXTS = ("message_id", "session_id", "subject", "content_type", "content_encoding", "to")


class Play:
    """The tasks of one case, with outputs that store what they accept."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        configuration = load(folder)
        self.refused: Mapping[str, list[str]] = {}
        self.outputs = {
            alias: OutputThatRejects(partial(self._is_refused, alias)) for alias in configuration.connections
        }
        self.clock = ManualClock(datetime.fromtimestamp(ENQUEUED / 1000, UTC))
        self.pipelines = {
            task.name: Pipeline(task, LogJournal(), self.clock, sleep_by(self.clock))
            for task in assemble(configuration, self.outputs, settings=settings, clock=self.clock)
        }
        self.taken: dict[str, int] = {}

    def step(self, step: Mapping[str, Any]) -> dict[str, int]:
        self.clock.advance(step.get("after", 0))
        self.refused = step.get("refuses", {})
        batch = [self._content(number, message) for number, message in enumerate(step["deliver"], 1)]
        counts = asyncio.run(self.pipelines[step["task"]].run(batch, step.get("partition")))
        return {str(outcome): count for outcome, count in counts.items()}

    def sent(self) -> dict[str, list[Outgoing]]:
        return {
            f"{site}/{entity}": messages
            for site, output in self.outputs.items()
            for entity, messages in output.accepted.items()
        }

    def _is_refused(self, alias: str, message: Outgoing) -> bool:
        return message.message_id in self.refused.get(alias, ())

    def _content(self, number: int, written: Mapping[str, Any]) -> bytes:
        if "raw" in written:
            return bytes.fromhex(written["raw"])
        named = {name: value_of(each) for name, each in written.get("properties", {}).items()}
        number = written.get("sequence_number", number)
        if "taken" not in written:
            options: dict[str, Any] = {name: string(written[name]) for name in TEXTS if name in written}
            return delivered(
                number,
                named=named,
                body=body_of(written.get("body", "body")),
                time_to_live=written.get("time_to_live"),
                annotated={"x-opt-partition-key": string(written["partition_key"])}
                if "partition_key" in written
                else {},
                **options,
            )
        place = written["taken"]
        self.taken[place] = written.get("at", self.taken.get(place, 0) + 1)
        message = Message.received(self.sent()[place][self.taken[place] - 1].content, SOMEWHERE)
        message.set_properties(named)
        if "body" in written:
            message.body = written["body"].encode()
        # The service assigns the annotations that Busway has removed.
        message.set_annotations({"x-opt-sequence-number": long(number), "x-opt-enqueued-time": timestamp(ENQUEUED)})
        return message.encode()


def body_of(written: str | bytes) -> bytes:
    return written if isinstance(written, bytes) else written.encode()


def value_of(plain: object) -> Value:
    match plain:
        case bytes():
            return binary(plain)
        case None:
            return NULL
        case bool():
            return boolean(plain)
        case int():
            return int_(plain)
        case float():
            return double(plain)
        case _:
            return string(str(plain))


def fields_of(outgoing: Outgoing, keys: Mapping[str, Any]) -> dict[str, object]:
    message = Message.received(outgoing.content, SOMEWHERE)
    found: dict[str, object] = {}
    for key in keys:
        if key == "properties":
            found[key] = {name: value.payload for name, value in message.application_properties()}
        elif key == "partition":
            found[key] = outgoing.partition
        elif key == "body":
            body = message.body or b""
            found[key] = body if isinstance(keys[key], bytes) else body.decode(errors="replace")
        else:
            value = getattr(message, key)
            found[key] = value.payload if isinstance(value, Value) else value
    return found


def written(case: Mapping[str, Any], folder: Path) -> Path:
    """Write the configuration of a case into *folder* and return it."""
    folder.joinpath("tasks").mkdir()
    if "connections" in case:
        folder.joinpath("connections.yaml").write_text(yaml.safe_dump(case["connections"]), encoding="utf-8")
    else:
        shutil.copy(ROOT / "config/connections.yaml", folder)
    for name, document in case.get("files", {}).items():
        folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
        content = document if isinstance(document, (str, bytes)) else json.dumps(document)
        folder.joinpath(name).write_bytes(body_of(content))
    if "file" in case:
        shutil.copy(ROOT / case["file"], folder / "tasks")
    else:
        tasks = case["task"] if isinstance(case["task"], list) else [case["task"]]
        folder.joinpath("tasks/task.yaml").write_text(yaml.safe_dump_all(tasks), encoding="utf-8")
    return folder


def settings_of(case: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the app settings of a case, with its keys and files."""
    found: dict[str, str] = {}
    for name, value in case.get("settings", {}).items():
        match value:
            case {"keys": list(asked)}:
                found[name] = jwks(*(made(each["kind"], each["kid"]) for each in asked))
            case {"file": str(file)}:
                found[name] = f"file:{folder / file}"
            case _:
                found[name] = str(value)
    return found


class Matching:
    """Equal to every text that a regular expression matches as a whole."""

    def __init__(self, expression: str) -> None:
        self.expression = expression

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(self.expression, other, re.DOTALL) is not None

    __hash__ = None  # type: ignore[assignment] # it is equal to many texts texts

    def __repr__(self) -> str:
        return f"{{matches: {self.expression!r}}}"


def with_patterns(expected: object) -> object:
    match expected:
        case {"matches": str(expression)}:
            return Matching(expression)
        case dict():
            return {name: with_patterns(each) for name, each in expected.items()}
        case list():
            return [with_patterns(each) for each in expected]
        case _:
            return expected


@pytest.mark.parametrize("path", sorted(CASES.glob("*.yaml")), ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    case = yaml.safe_load(path.read_text(encoding="utf-8"))
    folder = ROOT / case["folder"] if "folder" in case else written(case, tmp_path)
    play = Play(folder, settings_of(case, tmp_path))
    for step in case["steps"]:
        assert play.step(step) == step["outcomes"], step
    sent = play.sent()
    assert {place: len(messages) for place, messages in sent.items()} == {
        place: len(messages) for place, messages in case["sent"].items()
    }
    for place, expected in case["sent"].items():
        assert [
            fields_of(outgoing, keys) for outgoing, keys in zip(sent[place], expected, strict=True)
        ] == with_patterns(expected)
    lines = [json.loads(record.message) for record in caplog.records if record.name == "busway.journal"]
    expected = case.get("journal", [])
    assert [{key: line[key] for key in keys} for line, keys in zip(lines, expected, strict=True)] == expected
