"""An enrich editor with a table of customers, and messages for it."""

from pathlib import Path
from typing import Any

from shared.amqp.values import Value, string
from shared.clock import ManualClock
from shared.editors.enrich import Enrich
from shared.message.arrival import Origin
from shared.message.message import Message
from tests import editing
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
    found: Enrich = editing.editor("enrich", app, clock, folder=folder, **options)
    return found


def by_property(folder: Path, clock: ManualClock | None = None, **options: Any) -> Enrich:
    asked = {"table": "customers.csv", "key": {"property": "customer"}, "column": "id", "properties": COLUMNS}
    return editor(folder, clock, **{**asked, **options})


def order(customer: Value | str | None = "c-1", body: str = "{}", **options: Any) -> Message:
    value = string(customer) if isinstance(customer, str) else customer
    named = {} if value is None else {"Customer": value}
    return message(1, body=body.encode(), named=named, **options)


def properties(given: Message) -> dict[str, Value]:
    return dict(given.application_properties())


def fault(enrich: Enrich, given: Message) -> str:
    return ": ".join(editing.rejection(enrich, given))


def problem(folder: Path | None, **options: Any) -> str:
    return editing.problem("enrich", folder, **options)
