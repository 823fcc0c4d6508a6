"""
Messages removed by processes that are killed at random moments.

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
from shared.amqp.values import long
from tests.end_to_end.dead_letter_site import DeadLetterSite, ids
from tests.faults.line import strikes
from tests.impatience import impatient_clients
from tests.messages import delivered

pytestmark = pytest.mark.slow

DEAD = "orders/$DeadLetterQueue"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DeadLetterSite]:
    with impatient_clients(), DeadLetterSite(tmp_path) as site:
        yield site


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
    site: DeadLetterSite, command: tuple[str, ...], entity: str
) -> None:
    chance, total, killed = random.Random(22), 6_000, 0
    is_all = "--where" not in command
    contents = [delivered(n, named={"wanted": long(n % 3 and 1)}) for n in range(total)]
    site.bury("orders", contents) if entity == DEAD else site.publish("west/orders", contents)
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
        found = ids(site.there(f"west/{entity}"))
        assert max(Counter(found).values(), default=1) == 1
        assert {*kept} <= {*found}
        # As if the locks of the killed process had ended.
        faults.expire_locks(entity)
    assert killed == 4
    process = site.start(*command, "--wait", "30")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert ids(site.there(f"west/{entity}")) == kept
