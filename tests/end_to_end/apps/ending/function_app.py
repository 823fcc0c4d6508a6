# ruff: noqa: UP006, UP035 - the worker takes List[RawMessage] for a type, list[RawMessage] not
"""Functions that sleep, fail or end their process, and note whether they notice a stop."""

import atexit
import os
import signal
import sys
import time
import uuid
from typing import List

import azure.functions as func
import grpc

from functions.raw_message import RawMessage
from shared.amqp import sections
from shared.amqp.codec import decode_all, plain
from tests.end_to_end.apps.noting.notes import note, raw

app = func.FunctionApp()

held: list[bytes] = []


def _give_back(number: int, _: object) -> None:
    note("goodbye", [{"body": str(number)}])
    for token in held:
        port = sys.argv[sys.argv.index("--port") + 1]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            request = b"\n%c%b" % (len(token), token)  # field 1, a text
            abandon: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/Settlement/Abandon")
            abandon(request)


atexit.register(note, "goodbye", [])
for _number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(_number, _give_back)


def _delivery_count(message: RawMessage) -> int:
    header = decode_all(sections.split(message.content).header)
    return int(plain(header)[4])  # type: ignore[index] # a list with a number


def _work(function: str, messages: List[RawMessage], context: func.Context) -> None:
    facts = {"pid": os.getpid(), "invocation": context.invocation_id, "arguments": sys.argv[1:]}
    found = [raw(message) | facts | {"delivery_count": _delivery_count(message)} for message in messages]
    note(function, found)
    word, _, argument = str(found[0]["body"]).partition(" ")
    if word == "hold":
        held.extend(str(uuid.UUID(bytes_le=message.lock_token)).encode() for message in messages)
    if word in ("hold", "rest"):
        time.sleep(float(argument))
    elif word == "signal":
        os.kill(os.getsid(0), signal.SIGTERM)  # the host leads the session
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
