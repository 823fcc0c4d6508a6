"""An enrich editor with a table of customers, and messages for it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shared.amqp.values import Value, string
from shared.clock import ManualClock
from shared.editors.enrich import Enrich, EnrichStep
from shared.editors.options import FOLDER
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import EditedTogether
from tests.fakes import task_facts
from tests.messages import message

ORIGIN = Origin("west", "orders")
CUSTOMERS = "id,segment,limit,since,active\nc-1,gold,10.50,2020-01-31T12:00:00Z,true\nc-2,,,,\n"
COLUMNS = {
    "segment": "segment",
    "limit": {"column": "limit", "type": "double"},
    "since": {"column": "since", "type": "timestamp"},
    "active": {"column": "active", "type": "boolean"},
}


def editor(folder: Path, clock: ManualClock | None = None, app: dict[str, str] | None = None, **options: Any) -> Enrich:
    return EnrichStep.model_validate({"enrich": options}, context={FOLDER: folder}).editor(task_facts(app, clock))


def by_property(folder: Path, clock: ManualClock | None = None, **options: Any) -> Enrich:
    asked = {"table": "customers.csv", "key": {"property": "customer"}, "column": "id", "properties": COLUMNS}
    return editor(folder, clock, **{**asked, **options})


def order(customer: Value | str | None = "c-1", body: str = "{}", **options: Any) -> Message:
    value = string(customer) if isinstance(customer, str) else customer
    named = {} if value is None else {"Customer": value}
    return message(1, body=body.encode(), named=named, **options)


def asked(enrich: Enrich, *messages: Message) -> Sequence[EditedTogether]:
    return asyncio.run(enrich.edit_batch(messages, timeout_seconds=5))


def edited(enrich: Enrich, given: Message) -> Message:
    (result,) = asked(enrich, given)
    assert isinstance(result, Sequence), result
    assert isinstance(result[0], Message)
    return result[0]


def properties(given: Message) -> dict[str, Value]:
    return dict(given.application_properties())


def fault(enrich: Enrich, given: Message) -> str:
    (result,) = asked(enrich, given)
    assert isinstance(result, MessageRejected), result
    return str(result)


def problem(folder: Path | None, **options: Any) -> str:
    with pytest.raises(ValidationError) as raised:
        EnrichStep.model_validate({"enrich": options}, context={FOLDER: folder})
    return str(raised.value)
