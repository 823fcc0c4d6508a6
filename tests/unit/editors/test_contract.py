"""
Every editor meets docs/contribute/editor.md, checked with its golden case.

The tests use the last task of the case that has the editor, with its settings and files, and the messages that the case
first delivers to it. If these come from another task, that task processes them first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cli.dry_run.line import try_batches
from shared.amqp.codec import encode
from shared.amqp.sections import split
from shared.amqp.values import NULL, list_, long, string, symbol
from shared.clock import ManualClock
from shared.journal.in_memory import MemoryJournal
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch
from shared.line.item import Item
from shared.line.preparation import Preparation
from shared.line.states import Stage, State
from shared.message.message import Message
from shared.protocols import BatchEditor
from shared.tasks.steps import STEPS
from shared.testing import NOW, edited, message
from tests.editor_cases import Case, assembled_task, prepared
from tests.messages import delivered
from tools.reference.editor_pages import case_of

# Editors that set ids, set keys, or draw something new each time: content keys, and the nonce of ECDSA.
GIVES_IDS = {"split", "batch"}
GIVES_KEYS = {"partition"}
DRAWS = {"encrypt", "re-encrypt", "sign", "attest"}
SECRET = "xq7-body-4000-0566"


def edited_items(case: Case, contents: Sequence[bytes]) -> list[Item]:
    """Return the results of the editors of the case for messages in one delivery."""
    return asyncio.run(_edited_items(case, contents))


async def _edited_items(case: Case, contents: Sequence[bytes]) -> list[Item]:
    async def ask[T](_: str, question: Callable[[float], Awaitable[T]]) -> T:
        return await question(5.0)

    task = assembled_task(case, dry_run=True)
    preparation = Preparation(task, MemoryJournal(), AcceptedSends())
    batch = Batch(task.origin, contents, [None] * len(contents), ask, NOW)
    preparation.receive(batch)
    for step in preparation.steps():
        if step.stage in (Stage.RECEIVED, Stage.EDITED):
            pending = step.run(batch)
            if pending is not None:
                await pending
    return batch.items


def result(item: Item) -> object:
    if item.state not in (State.RECEIVED, State.JOINED):
        return item.state, item.reason
    assert item.message is not None
    return item.message.encode(), item.state


@pytest.fixture(params=sorted(STEPS))
def verb(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_no_editor_changes_the_id_ordering_key_or_arrival(verb: str) -> None:
    case = prepared(verb)
    origin = assembled_task(case, dry_run=True).origin
    found = [item for item in edited_items(case, case.contents) if item.state is State.RECEIVED]
    assert found, "no message of the golden case passes"
    for item in found:
        edited_message = item.message
        assert edited_message is not None
        received = Message.received(case.contents[item.original.position], origin)
        assert edited_message.arrival == received.arrival
        assert edited_message.session_id == received.session_id
        if verb not in GIVES_KEYS:
            assert edited_message.partition_key == received.partition_key
        if verb not in GIVES_IDS:
            assert edited_message.message_id == received.message_id
        else:
            assert edited_message.message_id is not None
        stamps = {name for name, _ in received.application_properties() if name.startswith("repl-")}
        assert stamps <= {name for name, _ in edited_message.application_properties()} | {
            "repl-chain",
            "repl-signature",
        }


def test_the_same_delivery_has_the_same_result_twice(verb: str) -> None:
    case = prepared(verb)
    first, second = (edited_items(case, case.contents) for _ in range(2))
    if verb in DRAWS:
        assert [item.state for item in first] == [item.state for item in second]
    else:
        assert list(map(result, first)) == list(map(result, second))


def test_an_editor_of_single_messages_has_the_same_result_alone_and_in_a_batch(verb: str) -> None:
    case = prepared(verb)
    if any(isinstance(editor, BatchEditor) for editor in assembled_task(case, dry_run=True).editors):
        return
    together = [(item.original.position, result(item)) for item in edited_items(case, case.contents)]
    alone = [(n, result(item)) for n, content in enumerate(case.contents) for item in edited_items(case, [content])]
    assert alone == together


def test_a_dry_run_leaves_every_store_as_it_was(verb: str) -> None:
    case = prepared(verb)
    before = snapshot(case.folder)
    clock = ManualClock(NOW)
    task = assembled_task(case, dry_run=True)
    partition = "0" if case.task.source.hub is not None else None
    results = asyncio.run(try_batches(task, [(partition, case.contents)], clock))
    assert all(result.ends for result in results)
    assert snapshot(case.folder) == before


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def nested(depth: int) -> bytes:
    return b"[" * depth + f'"{SECRET}"'.encode() + b"]" * depth


BODIES = {
    "empty": b"",
    "invalid UTF-8": b'{"' + SECRET.encode() + b'": "\xff\xfe"}',
    "half of a surrogate pair": b'{"a": "\\ud800' + SECRET.encode() + b'"}',
    "deep": nested(100_000),
    "not so deep": nested(900),
    "deep object": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "huge number": b'{"' + SECRET.encode() + b'": ' + b"9" * 100_000 + b"}",
    "huge exponent": b'{"amount": 1e999999999, "id": "' + SECRET.encode() + b'"}',
    "not a number": b'{"amount": NaN, "id": "' + SECRET.encode() + b'"}',
    "the same name twice": b'{"id": 1, "id": "' + SECRET.encode() + b'"}',
    "a byte order mark": b'\xef\xbb\xbf{"id": "' + SECRET.encode() + b'"}',
    "a long name": b'{"' + SECRET.encode() * 10_000 + b'": 1}',
    "null": b"null",
    "binary": bytes(range(256)) * 8,
    "XML with entities": b'<!DOCTYPE a [<!ENTITY b "' + SECRET.encode() * 3 + b'">]><a>&b;</a>',
    "gzip's beginning": b"\x1f\x8b\x08\x00" + SECRET.encode(),
    "zstd's beginning": b"\x28\xb5\x2f\xfd\xff\xff\xff\xff" + SECRET.encode(),
    "Avro's beginning": b"Obj\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + SECRET.encode(),
    "a token's beginning": b"eyJhbGciOiJub25lIn0." + SECRET.encode() + b".",
    "a claim": b'{"claim-check": 1, "container": "c", "blob": "../' + SECRET.encode() + b'"}',
}
SECTIONS = {
    "no body": ("body", b""),
    "a sequence": ("body", b"\x00\x53\x76" + encode(list_([string(SECRET)]))),
    "two sequences": ("body", (b"\x00\x53\x76" + encode(list_([string(SECRET)]))) * 2),
    "a number": ("body", b"\x00\x53\x77" + encode(long(7))),
    "a symbol": ("body", b"\x00\x53\x77" + encode(symbol(SECRET))),
    "null": ("body", b"\x00\x53\x77" + encode(NULL)),
    "properties that end early": ("application_properties", b"\x00\x53\x74\xc1\x04\x02\xa1\x0aab"),
    "an odd map of properties": ("application_properties", b"\x00\x53\x74\xc1\x04\x01\xa1\x01a"),
    "properties with another key": ("application_properties", b"\x00\x53\x74\xc1\x04\x02\x55\x01\x55\x01"),
    "fields that end early": ("properties", b"\x00\x53\x73\xc0\x03\x0d\xa1\x7f"),
    "fields of other types": ("properties", b"\x00\x53\x73\xc0\x0a\x08\x41\x40\x41\x41\x40\x40\x41\x41\x40"),
    "annotations that end early": ("message_annotations", b"\x00\x53\x72\xc1\x04\x02\xa3\x0aab"),
}


@cache
def hostile() -> dict[str, bytes]:
    found = {}
    for name, body in BODIES.items():
        for content_type in ("application/json", None):
            said = NULL if content_type is None else symbol(content_type)
            found[f"{name}, {content_type}"] = delivered(7, body=body, session_id="s", content_type=said)
    odd = {"repl-path": long(7), "repl-chain": string(SECRET), "repl-signature": string(f"a.{SECRET}.b"), "n": NULL}
    found["odd properties"] = delivered(7, named={**odd, "claim-check": long(1), "repl-attestation": list_([])})
    for name, (section, content) in SECTIONS.items():
        for number in (7, None):
            raw = split(delivered(number, session_id="s"))
            setattr(raw, section, content)
            found[f"{name}, number {number}"] = raw.encode()
    return found


def test_a_hostile_message_is_at_most_rejected_and_never_quoted(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    case = prepared(verb)
    task = assembled_task(case, dry_run=True)
    partition = "0" if case.task.source.hub is not None else None
    caplog.set_level(logging.DEBUG)
    names, contents = zip(*hostile().items(), strict=True)
    # One by one: what one message does to another is not the question here.
    results = asyncio.run(try_batches(task, [(partition, [content]) for content in contents], ManualClock(NOW)))
    for name, result in zip(names, results, strict=True):
        assert result.ends, name
        for end in result.ends:
            assert SECRET not in (end.reason or ""), name
            assert len(end.reason or "") < 2_000, name
    assert SECRET not in caplog.text
    assert SECRET.encode().hex() not in caplog.text


def test_unknown_options_are_refused_at_load(verb: str) -> None:
    case = prepared(verb)
    documents = yaml.safe_load_all((case.folder / "tasks/task.yaml").read_text(encoding="utf-8"))
    document = next(document for document in documents if document["task"] == case.task.task)
    options = next(each[verb] for each in document["editors"] if verb in each)
    for wrong in (None, 7, ["x"], {**options, "unheard_of": 1} if isinstance(options, dict) else {"unheard_of": 1}):
        with pytest.raises(ValidationError):
            edited({verb: wrong}, message(), folder=case.folder, settings=case.settings)


def test_the_golden_case_names_what_it_shows(verb: str) -> None:
    first, *_ = case_of(verb).read_text(encoding="utf-8").split("\n")
    assert first.startswith("# ")
    assert first.endswith(".")
