"""The order of 1 KB that the benchmarks of editors use, and the form of their cases."""

import json
from collections.abc import Callable
from typing import NamedTuple

from shared.amqp.sections import Sections, data
from shared.amqp.values import long, string
from shared.azure.secrets import open_secrets
from shared.clock import SystemClock
from shared.editors.options import TaskFacts
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Editor

LINES = [
    {"article": f"A-{100 + number}", "name": "Hexagon bolt M8 x 40, zinc plated", "count": number, "price": 10.5}
    for number in range(1, 10)
]

ORDER = {
    "id": "4711",
    "placed": "2030-03-17T17:46:40Z",
    "customer": {"id": "c-1", "name": "Blue Yonder", "address": {"city": "Köln", "country": "DE", "code": "50667"}},
    "lines": LINES,
    "total": 472.5,
    "note": None,
}

CONTENT = json.dumps(ORDER, ensure_ascii=False).encode()
TASK = TaskFacts("orders", Origin("west", "orders"), {}, open_secrets({}), SystemClock())


class Case(NamedTuple):
    """An editor, the message that it edits, and the library call that it wraps, done to the same message."""

    name: str
    editor: Editor
    message: Message
    bare: Callable[[Message], object]


def order(content: bytes = CONTENT) -> Message:
    """Return an order as its sender sends it."""
    message = Message(Sections(body=data(content)), Arrival(Origin("west", "orders"), 1, None, 1_900_000_000_123))
    message.message_id = string("4711")
    message.content_type = "application/json"
    message.session_id = "c-1"
    message.set_properties(
        {"country": string("DE"), "priority": long(7), "tenant": string("blue"), "kind": string("o")}
    )
    return message


def dumped(value: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()


def replace_body(change: Callable[[bytes], bytes], name: str, message: Message) -> None:
    """Change the body of *message* and set the content type of another format."""
    message.body = change(message.body or b"")
    message.content_type = f"application/{name}"


def edited_order(editor: Editor) -> Message:
    """Return the order after an editor has edited it."""
    (edited,) = editor.edit(order())
    if isinstance(edited, str):
        raise SystemExit(f"{editor.name} has withheld the order: {edited}")
    return edited
