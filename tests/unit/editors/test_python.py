"""The python editor: which functions it accepts, what they can use, and what happens to their results."""

import asyncio
import logging
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent
from typing import Any
from uuid import UUID

import pytest
from pydantic import ValidationError

from shared.amqp.values import NULL, Value, binary, double, list_, long, string, timestamp
from shared.editors.function_api import json_of, properties_of, put_json, put_text, reject, set_property, text_of
from shared.editors.own_thread import MOST_ABANDONED
from shared.editors.python import OwnFunction, Python
from shared.errors import MessageRejected, TargetRefused
from shared.message.message import Message
from shared.testing import edited, message
from shared.time_limit import REASON

HEAD = "from shared.editors.function_api import *\n"


type Run = Any


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def running(source: str, *messages: Message, **files: str) -> Any:
        (tmp_path / "own.py").write_text(HEAD + dedent(source), encoding="utf-8")
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(dedent(text), encoding="utf-8")
        return edited({"python": "own:edit"}, *(messages or (message({"secret": 1}),)), folder=tmp_path)

    return running


def test_the_returned_message_is_sent(run: Run) -> None:
    result = run("def edit(m):\n    put_json(m, {'a': 2})\n    set_property(m, 'n', 5)\n    return m")
    assert (result.message.text, result.message.properties, result.message.message_id) == ('{"a":2}', {"n": 5}, "m-1")


@pytest.mark.parametrize("nothing", ["None", "[]", "()"])
def test_a_function_that_returns_nothing_withholds_the_message(run: Run, nothing: str) -> None:
    result = run(f"def edit(m): return {nothing}")
    assert (result.messages, result.reasons) == ([], ["python own:edit: withheld"])


@pytest.mark.parametrize("several", ["[m, m]", "(m, m.copy())"])
def test_each_of_several_returned_messages_gets_its_own_id(run: Run, several: str) -> None:
    result = run(f"def edit(m): return {several}", message(message_id="a"), message(message_id=None))
    ids = [each.message_id for each in result.messages]
    assert ids[:2] == ["a/0", "a/1"]
    assert len(set(ids)) == 4
    again = run(f"def edit(m): return {several}", message(message_id="a"), message(message_id=None))
    assert [each.message_id for each in again.messages] == ids


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("raise KeyError('secret')", "EditorFailed: python own:edit: failed with KeyError"),
        ("raise SystemExit('secret')", "EditorFailed: python own:edit: failed with SystemExit"),
        ("return edit(m)", "EditorFailed: python own:edit: failed with RecursionError"),
        ("reject('NoOrder', 'expected one')", "NoOrder: python own:edit: expected one"),
        ("return 5", "returned a int, expected a message, a list of messages or None"),
        ("return [m, None]", "returned a list, expected a message, a list of messages or None"),
        ("return {m}", "returned a set, expected"),
        ("m.message_id = None; return m", "changed the id, which"),
        ("m.session_id = 'x'; return m", "changed the session, which"),
        ("m.set_annotations({'x-opt-partition-key': None}); return m", "changed the partition key, which"),
        ("import copy; m.arrival = copy.replace(m.arrival, offset='x'); return m", "changed the arrival, which"),
        ("set_property(m, 'repl-path', None); return m", "changed a property that begins with repl-, which"),
        ("set_property(m, 'Repl-new', 1); return m", "changed a property that begins with repl-, which"),
        ("m.sections.body = 'secret'; return m", "changed the type of a section"),
        ("m.body = 'secret'; return m", "failed with TypeError"),
        ("m.sections = None; return m", "changed the type of a section"),
        ("m.sections.properties = b'secret'; return m", "MalformedMessage: "),
        ("reject(5, ['expected'])", "5: python own:edit: ['expected']"),
        ("c = m.copy(); c.session_id = 'x'; return [m, c]", "changed the session, which"),
        ("put_json(m, {1: 2}); return m", "NotWritable: python own:edit: the result has an object with a name"),
    ],
)
def test_an_error_in_the_function_rejects_the_message(run: Run, source: str, problem: str) -> None:
    received = message({"secret": 1}, session_id="s", partition_key="s", properties={"repl-path": "north"})
    result = run(f"def edit(m): {source}", received)
    assert [str(outcome) for outcome in result.outcomes] == ["rejected"]
    assert problem in result.reasons[0]
    assert "secret" not in result.reasons[0]


def test_a_failing_message_does_not_affect_the_others(run: Run) -> None:
    received = [message({"n": number}, message_id=str(number)) for number in range(5)]
    result = run("def edit(m):\n    1 / (json_of(m)['n'] - 3)\n    return m", *received)
    assert [str(outcome) for outcome in result.outcomes] == ["sent", "sent", "sent", "rejected", "sent"]


def test_changed_subject_and_annotations_are_accepted(run: Run) -> None:
    source = "def edit(m):\n    m.subject = 'x'\n    m.set_annotations({'mine': None})\n    return m"
    sent = run(source, message(session_id="s", partition_key="s", properties={"repl-path": "north"})).message
    assert (sent.subject, sent.session_id, sent.partition_key) == ("x", "s", "s")


def test_the_place_of_a_failure_is_logged_at_debug_without_values(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "busway.editors")
    run("def edit(m):\n    raise KeyError(text_of(m))", message("a secret"))
    (record,) = [record for record in caplog.records if record.name == "busway.editors"]
    assert "own.py" in record.getMessage()
    assert "a secret" not in caplog.text


def test_neighbouring_modules_are_imported_relatively_and_modules_of_the_app_by_name(run: Run, tmp_path: Path) -> None:
    source = "from .rates import RATE\ndef edit(m):\n    put_json(m, RATE)\n    return m"
    assert run(source, rates="RATE = 19").message.text == "19"
    assert edited({"python": "copy:copy"}, message("x"), folder=tmp_path).message.text == "x"
    (tmp_path / "copy.py").write_text("def copy(m): return None")
    assert edited({"python": "copy:copy"}, message("x"), folder=tmp_path).messages == []


@pytest.mark.parametrize(
    ("source", "name", "problem"),
    [
        ("", 5, "expected a function as package.module:function"),
        ("", "own", "expected a function as package.module:function"),
        ("", "own:edit\n", "expected a function as package.module:function"),
        ("", "../own:edit", "expected a function as package.module:function"),
        ("", "nowhere:edit", "module nowhere cannot be imported: ModuleNotFoundError"),
        ("", "own.deeper:edit", "module own.deeper cannot be imported: ModuleNotFoundError"),
        ("", "own:edit", "module own has no edit"),
        ("edit = 5", "own:edit", "own:edit is a int, expected a function"),
        ("class edit: pass", "own:edit", "own:edit is a type, expected a function"),
        ("def edit(): pass", "own:edit", "own:edit cannot be called with a message alone"),
        ("def edit(a, b): pass", "own:edit", "own:edit cannot be called with a message alone"),
        ("async def edit(m): pass", "own:edit", "own:edit is asynchronous"),
        ("class A:\n    async def __call__(self, m): pass\nedit = A()", "own:edit", "own:edit is asynchronous"),
        ("def edit(m): yield m", "own:edit", "own:edit is a generator"),
        ("1 / 0", "own:edit", "module own cannot be imported: ZeroDivisionError: division by zero"),
        ("def", "own:edit", "module own cannot be imported: SyntaxError"),
        ("raise SystemExit(1)", "own:edit", "module own cannot be imported: SystemExit"),
    ],
)
def test_a_function_that_cannot_be_used_is_reported(tmp_path: Path, source: str, name: int | str, problem: str) -> None:
    (tmp_path / "own.py").write_text(source)
    with pytest.raises(ValidationError) as caught:
        edited({"python": name}, message(), folder=tmp_path)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, Decimal("10.10"), True, None, "x"]}, '{"a":[1,2.5,10.10,true,null,"x"]}'),
        ((1, 2), "[1,2]"),
        (1e300, "1E+300"),
    ],
)
def test_json_is_written(value: object, text: str) -> None:
    made = message()
    put_json(made, value)
    assert text_of(made) == text


@pytest.mark.parametrize(
    "value", [float("nan"), [float("inf")], Decimal("NaN"), {"a": b"x"}, object(), {1: 2}, "\ud83d"]
)
def test_values_that_json_cannot_represent_are_not_written(value: object) -> None:
    with pytest.raises(MessageRejected) as caught:
        put_json(message(), value)
    assert caught.value.reason == "NotWritable"


def test_a_cycle_is_not_written() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(MessageRejected):
        put_json(message(), cycle)


def test_json_and_text_are_read() -> None:
    assert json_of(message(b'{"a": 10.10}')) == {"a": Decimal("10.10")}
    with pytest.raises(MessageRejected, match="NotText: body is not UTF-8 at byte 1"):
        text_of(message(b"a\xff"))
    made = message()
    put_text(made, "grün")
    assert made.body == "grün".encode()


def test_properties_are_read_and_set() -> None:
    made = message()
    at = datetime(2030, 3, 17, 17, 46, 40, 123_000, UTC)
    given = {"s": "x", "b": True, "i": 5, "f": 1.5, "t": at, "u": UUID(int=7)}
    for name, value in given.items():
        set_property(made, name, value)
    set_property(made, "v", Value(0x71, 5))
    set_property(made, "n", NULL)
    set_property(made, "l", list_([long(1), binary(b"x")]))
    assert properties_of(made) == {**given, "v": 5, "n": None, "l": [1, b"x"]}
    assert made.application_property("i") == long(5)
    assert made.application_property("f") == double(1.5)
    set_property(made, "s", None)
    assert made.application_property("s") is None
    with pytest.raises(TypeError):
        set_property(made, "s", [])
    # The end of .NET's time with all its milliseconds, and one that no datetime can hold.
    late = {"a": string("x"), "t": timestamp(253_402_300_799_999), "u": timestamp(253_402_300_800_000)}
    assert properties_of(message(properties=late)) == {
        "a": "x", "t": datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC), "u": 253_402_300_800_000
    }  # fmt: skip


def test_reject_raises() -> None:
    with pytest.raises(MessageRejected, match="A: b"):
        reject("A", "b")


def test_function_that_waits_does_not_delay_other_tasks() -> None:
    """The calls run in their own thread, and each has a time limit."""
    released = threading.Event()

    def waits(each: Message) -> Message:
        if each.body != b"good":
            released.wait(30)
        return each

    beats = 0

    async def run() -> Any:
        editor = Python(OwnFunction("own:waits", waits), 0.1)

        async def beat() -> None:
            nonlocal beats
            while True:
                beats += 1
                await asyncio.sleep(0.005)

        heart = asyncio.create_task(beat())
        given = [message(body) for body in (b"bad", b"good", b"bad")]
        results = await editor.edit_batch(given, timeout_seconds=5)
        heart.cancel()
        return results

    first, second, third = asyncio.run(run())
    released.set()
    assert (first.reason, third.reason) == (REASON, REASON)
    assert [each.body for each in second] == [b"good"]
    assert beats > 5


def test_function_that_computes_endlessly_is_ended() -> None:
    threads: list[threading.Thread] = []

    def computes(_: Message) -> None:
        threads.append(threading.current_thread())
        while True:
            sum(range(100))

    async def run() -> Any:
        return await Python(OwnFunction("own:computes", computes), 0.1).edit_batch([message(b"")], timeout_seconds=5)

    (result,) = asyncio.run(run())
    assert result.reason == REASON
    threads[0].join(10)
    assert not threads[0].is_alive()


def test_calls_that_never_return_stop_the_task() -> None:
    released = threading.Event()

    def waits(_: Message) -> None:
        released.wait(30)

    async def run() -> Any:
        editor = Python(OwnFunction("own:waits", waits), 0.02)
        return await editor.edit_batch([message(b"")] * (MOST_ABANDONED + 1), timeout_seconds=5)

    with pytest.raises(TargetRefused, match="calls do not return"):
        asyncio.run(run())
    released.set()
