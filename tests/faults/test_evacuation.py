"""
Evacuations that are killed at every step.

It takes minutes: `BUSWAY_SLOW=1 .venv/bin/python -m pytest tests/faults/test_evacuation.py`.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from azure.servicebus import ServiceBusMessage

from cli.letters.ledger_file import LedgerFile
from shared.resend import evidence
from tests.end_to_end.evacuation_site import DUE, EvacuationSite, numbers_of
from tests.impatience import impatient_clients

pytestmark = pytest.mark.slow

COUNT = 4


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EvacuationSite]:
    with EvacuationSite(tmp_path_factory.mktemp("site")) as site:
        yield site


class Killed(BaseException):
    """Ends a run as SIGKILL would: nothing after it is recorded."""


@pytest.mark.parametrize("is_written", [False, True])
def test_a_run_killed_at_any_step_loses_and_doubles_nothing(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """
    Each write to the ledger is a step; the run is killed before it, or after it and before what follows.

    The simulation has no deferred and scheduled messages, and no states of sessions.
    """
    queue = "sessions"
    monkeypatch.setattr("shared.resend.run.AT_ONCE", 3)
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)  # a send that was cut off here never arrives later
    append, killed = LedgerFile.append, 0
    with impatient_clients():
        for step in count(1):
            site.broker.reset()
            for path in (site.folder / "build").rglob("*.jsonl"):
                path.unlink()
            site.fill(queue, COUNT, sessions=True)
            left = iter(range(step))

            async def dying(self: LedgerFile, line: str, left: Iterator[int] = left) -> None:
                if next(left, None) is not None:
                    return await append(self, line)
                if is_written:
                    await append(self, line)
                raise Killed

            monkeypatch.setattr(LedgerFile, "append", dying)
            try:
                site.evacuate(f"west/{queue}")
            except Killed:
                killed += 1
            finally:
                monkeypatch.setattr(LedgerFile, "append", append)
            site.broker.faults("west").expire_locks(queue)
            again = site.evacuate(f"west/{queue}")
            if again.exit_code:
                # The first send of all has no evidence of earlier ones; nothing consumes here.
                assert "unclear: an interrupted run may have sent it" in again.stdout, again.stdout + again.stderr
                again = site.evacuate(f"west/{queue}", "east", "--unclear", "send")
            assert again.exit_code == 0, again.stdout + again.stderr
            assert_all_arrived(site, queue, COUNT)
            if next(left, None) is not None:
                break
    assert killed > 10


def test_a_scheduled_message_that_becomes_active_meanwhile_arrives_once(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is scheduled at both sides when the run is killed, and becomes active at both."""
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)
    site.broker.reset()
    site.fill("orders", 2)

    async def cancelled_never(*_: object) -> list[object]:
        raise Killed

    monkeypatch.setattr("cli.evacuation.schedule.ScheduledSource.complete", cancelled_never)
    with pytest.raises(Killed):
        site.evacuate("west/orders")
    monkeypatch.undo()
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)
    due = round(DUE.timestamp() * 1000)
    for name in ("west", "east"):
        site.broker.inspect(name, lambda each: each.queue("orders").incoming.advance(due))
    site.send("west/orders", ServiceBusMessage("another", message_id="active-9"))
    again = site.evacuate("west/orders")
    assert again.exit_code == 0, again.stdout + again.stderr
    names = site.names("orders", "east")
    assert Counter(names).most_common(1)[0][1] == 1, names
    assert {*numbers_of(names, "scheduled")} == {0, 1}
    assert site.names("orders", "west") == []


def assert_all_arrived(site: EvacuationSite, queue: str, total: int) -> None:
    """Assert that each message is at the target once, in its state, and in order per session."""
    assert (site.names(queue, "west"), site.there(f"west/{queue}/$DeadLetterQueue")) == ([], [])
    names = site.names(queue, "east")
    assert Counter(names).most_common(1)[0][1] == 1, names
    dead = site.names(f"{queue}/$DeadLetterQueue", "east")
    assert sorted(numbers_of(dead, "dead")) == [*range(total)]
    for kind in ("active", "deferred", "scheduled"):
        numbers = numbers_of([name for name in names if name.endswith(kind)], kind)
        assert sorted(numbers) == [*range(total)], (kind, names)
    for parity in (0, 1) if queue == "sessions" else ():
        numbers = [each for each in numbers_of(names, "active") if each % 2 == parity]
        assert numbers == sorted(numbers)
    if queue == "sessions":
        assert site.states(queue, "west") == {}
        assert {*site.states(queue, "east")} == {"s-0", "s-1", "empty"}
