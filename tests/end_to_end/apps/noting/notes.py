"""What the functions of this app write down for the test, and what bodies make them do."""

import json
import os
import time
from pathlib import Path

from functions.raw_message import RawMessage
from shared.amqp import sections


def note(function: str, messages: list[dict[str, object]]) -> None:
    """Write a line with one invocation, then do as the bodies say: fail, sleep, or nothing."""
    line = json.dumps({"function": function, "messages": messages}, default=str)
    with Path(os.environ["NOTES"]).open("a") as file:
        file.write(line + "\n")
    for message in messages:
        words = str(message["body"]).split()
        if words[:1] == ["sleep"]:
            time.sleep(float(words[1]))
        if "fail" in words and function != "dead_letters":
            raise RuntimeError("as the message says")


def raw(message: RawMessage) -> dict[str, object]:
    """Return the body, its size, and the start of the message as hex."""
    parts = sections.body_parts(sections.split(message.content).body)
    body = b"".join(value.payload for _, value in parts if isinstance(value.payload, bytes))
    return {"body": body[:100].decode(), "size": len(body), "amqp": message.content[:2000].hex()}
