"""Editors that encrypt, and an order for them."""

import asyncio
from typing import Any

from shared.errors import MessageRejected
from shared.message.message import Message
from shared.tasks.steps import STEPS
from tests.fakes import task_facts
from tests.messages import message

ORDER = (
    b'{ "id":"4711", "amount" : 10.50, "card": {"number":"4000-1", "name": "A. Sender"}, "lines":[{"n": 1e2 },{"n":2}]}'
)


def editor(verb: str, app: dict[str, str], **options: Any) -> Any:
    return STEPS[verb].model_validate({verb: options}).editor(task_facts(app))


def edited(each: Any, *messages: Message) -> Any:
    return asyncio.run(each.edit_batch(messages, timeout_seconds=5))


def one(each: Any, message: Any) -> Any:
    (result,) = edited(each, message)
    if isinstance(result, MessageRejected):
        raise result
    assert isinstance(result, tuple), result
    return result[0]


def order(body: Any = ORDER, number: int = 1, **options: Any) -> Message:
    return message(number, body=body, content_type="application/json", **options)
