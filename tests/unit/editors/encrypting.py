"""Editors that encrypt, and an order for them."""

from typing import Any

from shared.message.message import Message
from tests.messages import message

ORDER = (
    b'{ "id":"4711", "amount" : 10.50, "card": {"number":"4000-1", "name": "A. Sender"}, "lines":[{"n": 1e2 },{"n":2}]}'
)


def order(body: Any = ORDER, number: int = 1, **options: Any) -> Message:
    return message(number, body=body, content_type="application/json", **options)
