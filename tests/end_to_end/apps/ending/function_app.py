# ruff: noqa: UP006, UP035 - the worker takes List[RawMessage] for a type, list[RawMessage] not
"""Functions that sleep, fail or end their process, and note whether they notice a stop."""

import atexit
import os
import signal
import sys
import time
from typing import List

import azure.functions as func

from functions.raw_message import RawMessage
from shared.amqp import sections
from shared.amqp.codec import decode_all, plain
from tests.end_to_end.apps.noting.notes import note, raw

app = func.FunctionApp()

atexit.register(note, "goodbye", [])
for _number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(_number, lambda number, _: note("goodbye", [{"body": str(number)}]))


def _delivery_count(message: RawMessage) -> int:
    header = decode_all(sections.split(message.content).header)
    return int(plain(header)[4])  # type: ignore[index] # a list with a number


def _work(function: str, messages: List[RawMessage], context: func.Context) -> None:
    facts = {"pid": os.getpid(), "invocation": context.invocation_id, "arguments": sys.argv[1:]}
    found = [raw(message) | facts | {"delivery_count": _delivery_count(message)} for message in messages]
    note(function, found)
    word, _, argument = str(found[0]["body"]).partition(" ")
    if word == "rest":
        time.sleep(float(argument))
    elif word == "signal":
        os.kill(os.getppid(), signal.SIGTERM)
    elif word == "break":
        raise ValueError("asked for")
    elif word == "die" and found[0]["delivery_count"] == 1:
        os._exit(3)
    note(f"{function} done", found)


@app.service_bus_queue_trigger(arg_name="messages", queue_name="first", connection="SB", cardinality="many")
def first(messages: List[RawMessage], context: func.Context) -> None:
    _work("first", messages, context)


@app.service_bus_queue_trigger(arg_name="messages", queue_name="second", connection="SB", cardinality="many")
def second(messages: List[RawMessage], context: func.Context) -> None:
    _work("second", messages, context)
