"""chain and verify-chain while their store or their target is unavailable."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from shared.amqp import sections
from shared.errors import TargetUnavailable
from shared.message.message import Message
from shared.protocols import Outcome
from shared.stores.documents import Changed, Documents
from tests import editing
from tests.chained import arrived, carried, chainer, edit, linked, order, store_settings, verifier
from tests.fakes import OutputThatIsDown, OutputThatRejects
from tests.messages import delivered


@pytest.fixture
def app(tmp_path: Path) -> dict[str, str]:
    return store_settings(tmp_path / "state.db")


def messages(first: Any, last: int) -> list[Message]:
    return [order(number) for number in range(first, last + 1)]


class Away:
    """A store that is unavailable for some calls, or loses answers."""

    def __init__(
        self, documents: Documents, *, reads: int = 0, writes: int = 0, answers: int = 0, changes: Any = 0
    ) -> None:
        self._documents = documents
        self.reads, self.writes, self.answers, self.changes = reads, writes, answers, changes

    async def read_all(self, name: str) -> Any:
        if self.reads:
            self.reads -= 1
            raise TargetUnavailable("store: away")
        return await self._documents.read_all(name)

    async def write_version(self, name: str, content: bytes, version: str | None) -> str:
        if self.writes:
            self.writes -= 1
            raise TargetUnavailable("store: away")
        if self.changes:
            self.changes -= 1
            raise Changed("store: changed")
        written = await self._documents.write_version(name, content, version)
        if self.answers:
            self.answers -= 1
            raise TargetUnavailable("store: no answer")
        return written


def with_faults(each: Any, **faults: Any) -> Any:
    each._sequences._documents = Away(each._sequences._documents, **faults)
    return each


class Line(editing.Line):
    def run(self, *numbers: int) -> Any:
        batch = [delivered(number, body=b"order %d" % number, session_id="s") for number in numbers]
        return self.deliver(batch)

    def sent(self) -> Any:
        return self.output.messages("orders")


@pytest.mark.parametrize("faults", [{"reads": 2}, {"writes": 2}, {"answers": 2}, {"changes": 3}])
def test_a_store_outage_holds_the_batch_and_breaks_no_chain(app: dict[str, str], faults: Any) -> None:
    line = Line(with_faults(chainer(app), **faults))
    assert line.run(1, 2, 3) == {Outcome.SENT: 3}
    assert line.run(4) == {Outcome.SENT: 1}
    links = [each.encode() for each in _delivered(line.sent())]
    verifies = with_faults(verifier(app), **faults)
    verifying = Line(verifies)
    assert verifying.deliver(links) == {Outcome.SENT: 4}
    settled, _ = asyncio.run(verifies._sequences.read("west/orders/s"))
    assert settled.number == 4


def test_nothing_passes_while_the_store_is_unavailable(app: dict[str, str]) -> None:
    for faults in ({"reads": 10**9}, {"writes": 10**9}, {"changes": 10**9}):
        line = Line(with_faults(chainer(app), **faults))
        with pytest.raises(TargetUnavailable):
            line.run(1, 2)
        assert line.sent() == []
    line = Line(with_faults(verifier(app), reads=10**9))
    with pytest.raises(TargetUnavailable):
        line.deliver([each.encode() for each in _delivered(linked(chainer(app), messages(1, 2)))])
    assert line.sent() == []


def _delivered(links: Any) -> Any:
    """Return messages with links as the service delivers them."""
    made = []
    for number, link in enumerate(links, 1):
        copy = link.copy()
        copy.sections.message_annotations = sections.split(delivered(number)).message_annotations
        made.append(copy)
    return made


def test_links_stay_the_same_while_the_target_is_unavailable(app: dict[str, str]) -> None:
    down = OutputThatIsDown()
    line = Line(chainer(app), output=down)
    with pytest.raises(TargetUnavailable):
        line.run(1, 2)
    down.put_up()
    assert line.run(1, 2, 3) == {Outcome.SENT: 3}
    assert carried(verifier(app), arrived(line.sent())) == ["passes"] * 3


def test_a_message_that_the_target_refuses_is_reported_as_missing_in_the_chain(app: dict[str, str]) -> None:
    line = Line(chainer(app), output=OutputThatRejects(lambda outgoing: outgoing.message_id == "m-2"))
    assert line.run(1, 2, 3) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    assert carried(verifier(app), arrived(line.sent())) == ["passes", "ChainMissing"]


def test_verification_continues_after_a_target_outage(app: dict[str, str]) -> None:
    links = [each.encode() for each in _delivered(linked(chainer(app), messages(1, 5)))]
    down = OutputThatIsDown()
    line = Line(verifier(app, duplicates="withhold"), output=down)
    with pytest.raises(TargetUnavailable):
        line.deliver(links[:3])
    down.put_up()
    assert line.deliver(links) == {Outcome.SENT: 5}
    assert Line(verifier(app)).deliver(links[3:]) == {Outcome.SENT: 2}


def test_an_invalid_state_document_raises_an_error_for_the_operator(app: dict[str, str]) -> None:
    linked(chainer(app), messages(1, 1))
    with sqlite3.connect(app["STATE"].removeprefix("file:")) as opened:
        opened.execute("UPDATE documents SET content = ?", [b'{"number": "x"}'])
    opened.close()
    with pytest.raises(Exception, match="is not the state of a sequence"):
        edit(chainer(app), messages(1, 1))
