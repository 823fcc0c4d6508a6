"""An outbox, and messages of a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from busway_clients import Outbox


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    opened = Outbox(tmp_path / "outbox.db")
    yield opened
    opened.close()


def parcel(number: int, session: str = "parcel") -> ServiceBusMessage:
    return ServiceBusMessage(f"{session}-{number}", session_id=session)
