"""
Dead letters resent and removed by runs that are killed: at every step, and by processes at random moments.

It takes minutes: `BUSWAY_SLOW=1 .venv/bin/python -m pytest tests/faults/test_dead_letters.py`.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from shared.amqp.values import long
from shared.resend import evidence
from shared.resend.ledger import Ledger
from shared.resend.ledger_blob import LedgerBlob
from tests.azurite import running_azurite
from tests.end_to_end.dashboard_requests import BROKEN, ORDERS, Dashboard, resent_in_steps
from tests.end_to_end.dead_letter_site import EAST, WEST, Site, ids, property_of
from tests.end_to_end.killed_resend import resend_with_kills
from tests.faults.line import strikes
from tests.impatience import impatient_clients
from tests.messages import delivered

COUNT = 6
DEAD = "orders/$DeadLetterQueue"


def test_5000_dead_letters_survive_five_kills_in_order_per_session(tmp_path: Path) -> None:
    with RunningBroker([WEST, EAST]) as broker:
        resend_with_kills(Site(broker, tmp_path), 5_000, 5, seed=22)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with impatient_clients(), RunningBroker([WEST, EAST]) as broker:
        yield Site(broker, tmp_path)


class Killed(BaseException):
    """Ends a run as SIGKILL would: nothing after it is recorded."""


@pytest.mark.parametrize("is_written", [False, True])
def test_a_run_killed_at_any_step_loses_and_doubles_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """Each write to the ledger is a step; the run is killed before it, or after it and before what follows."""
    monkeypatch.setattr("shared.resend.run.AT_ONCE", 3)
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)  # a send that was cut off here never arrives later
    contents = [delivered(n, session_id=f"s-{n % 3}", named={"n": long(n)}) for n in range(COUNT)]
    append = Ledger._append
    killed = 0
    for step in range(1, 40):
        site.broker.reset()
        for each in (site.folder / "build").rglob("*.jsonl"):
            each.unlink()
        site.bury("orders", contents)
        left = iter(range(step))

        async def dying(self: Ledger, line: object, left: Iterator[int] = left) -> None:
            if next(left, None) is not None:
                return await append(self, line)
            if is_written:
                await append(self, line)
            raise Killed

        monkeypatch.setattr(Ledger, "_append", dying)
        try:
            site.run("dead", "resend", "west/orders", "--all", "--to", "east/orders", "--yes")
        except Killed:
            killed += 1
        finally:
            monkeypatch.setattr(Ledger, "_append", append)
        site.broker.faults("west").expire_locks(DEAD)
        again = site.run("dead", "resend", "west/orders", "--all", "--to", "east/orders", "--yes")
        if again.returncode:
            # The first send of all has no evidence of earlier ones; nothing consumes here.
            assert "unclear: an interrupted run may have sent it" in again.stdout
            again = site.run(
                "dead", "resend", "west/orders", "--all", "--to", "east/orders", "--unclear", "send", "--yes"
            )
        assert again.returncode == 0, again.stdout + again.stderr
        arrived = site.there("orders", site="east")
        assert sorted(ids(arrived)) == [f"m-{n}" for n in range(COUNT)]
        for session_id in ("s-0", "s-1", "s-2"):
            numbers = [property_of(each, "n") for each in arrived if each.session_id == session_id]
            assert numbers == sorted(numbers)
        assert site.dead() == []
        if next(left, None) is not None:
            break
    assert killed > 6


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[str]:
    with running_azurite(tmp_path) as connection_string:
        yield connection_string


@pytest.mark.parametrize("is_written", [False, True])
def test_a_step_of_the_dashboard_killed_at_any_write_to_its_ledger_loses_and_doubles_nothing(
    site: Site, storage: str, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)
    dashboard = Dashboard(site, storage, BUSWAY_DASHBOARD_RESEND="on")
    append = LedgerBlob.append
    order: dict[str, object] = {"entity": ORDERS, "group": BROKEN, "to": "east/orders"}
    killed = 0
    for write in range(2, 9):
        site.broker.reset()
        site.bury("orders", [delivered(n, session_id=f"s-{n % 2}") for n in range(3)])
        left = iter(range(write))

        async def dying(self: LedgerBlob, line: str, left: Iterator[int] = left) -> None:
            is_last = next(left, None) is None
            if is_written or not is_last:
                await append(self, line)
            if is_last:
                raise Killed

        monkeypatch.setattr(LedgerBlob, "append", dying)
        try:
            dashboard.resend(order)
        except Killed:
            killed += 1
        finally:
            monkeypatch.setattr(LedgerBlob, "append", append)
        site.broker.faults("west").expire_locks(DEAD)
        steps = resent_in_steps(dashboard, order)
        if steps[-1]["left"]:
            # The first send of all has no evidence of earlier ones; nothing consumes here.
            assert "unclear: an interrupted run may have sent it" in steps[-1]["left"][0]["reason"]
            steps = resent_in_steps(dashboard, {**order, "unclear": "send"})
        assert steps[-1]["left"] == []
        arrived = site.there("orders", site="east")
        assert sorted(ids(arrived)) == ["m-0", "m-1", "m-2"]
        assert site.dead() == []
    assert killed > 2


@pytest.mark.parametrize(
    ("command", "entity"),
    [
        (("dead", "drop", "west/orders", "--where", "wanted = 1", "--yes"), DEAD),
        (("messages", "drop", "west/orders", "--where", "wanted = 1", "--yes"), "orders"),
        (("messages", "drop", "west/orders", "--all", "--yes"), "orders"),
    ],
    ids=["dead letters", "by rule", "by the service"],
)
def test_a_removal_that_is_killed_takes_only_what_is_selected_and_can_be_repeated(
    site: Site, command: tuple[str, ...], entity: str
) -> None:
    chance, total, killed = random.Random(22), 6_000, 0
    is_all = "--where" not in command
    contents = [delivered(n, named={"wanted": long(n % 3 and 1)}) for n in range(total)]
    site.bury("orders", contents) if entity == DEAD else site.publish("orders", contents)
    kept = [] if is_all else [f"m-{n}" for n in range(0, total, 3)]
    faults = site.broker.faults("west")
    for _ in range(4):
        # The process gets nothing after this until it is killed. Without a rule it has the broker delete 500 at once.
        operation, at = (
            (Operation.MANAGE, chance.randrange(1, 4)) if is_all else (Operation.TRANSFER, chance.randrange(1, 1_000))
        )
        faults.add(Fault(effect=Effect.DELAY, operations=frozenset({operation}), at=at, delay=600.0))
        process = site.start(*command, "--wait", "30")
        while process.poll() is None and not strikes(faults):
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        faults.clear()
        killed += process.returncode == -signal.SIGKILL
        found = ids(site.there(entity))
        assert max(Counter(found).values(), default=1) == 1
        assert {*kept} <= {*found}
        # As if the locks of the killed process had ended.
        faults.expire_locks(entity)
    assert killed == 4
    process = site.start(*command, "--wait", "30")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert ids(site.there(entity)) == kept
