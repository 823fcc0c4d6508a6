"""
The oracle: the permitted results for messages that a source has accepted.

1. Each is at a target, in rejects, withheld by a decision that the journal records, or still at the source. One that
   is nowhere is lost.
2. The first copies of the messages of a key arrive in the order in which the source accepted them.
3. A duplicate is counted, and the scenario must explain it.
4. The source's dead-letter queue is empty, and no message arrives that was never sent.

It has no access to brokers, hosts and faults: it compares lists of names.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Copy(NamedTuple):
    """One message: the name that the test gave it, and the key within which its order counts."""

    key: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Account:
    """
    The observations after all messages were settled.

    Shape: accepted and delivered are in the order of the source and of the targets, within each key;
           rejected and dead_lettered may name a message more than once, as they are queues. repeatable says how many
           copies beyond the first the scenario can explain, by name. deliveries is the highest count of failed ones.
    """

    accepted: Sequence[Copy]
    delivered: Sequence[Copy]
    withheld: frozenset[str] = frozenset()
    rejected: Sequence[str] = ()
    remaining: frozenset[str] = frozenset()
    dead_lettered: Sequence[str] = ()
    deliveries: int = 0
    repeatable: Counter[str]


@dataclass(frozen=True)
class Balance:
    """The oracle's result; names are in the order of acceptance."""

    accepted: int
    delivered: int
    withheld: int
    rejected: int
    remaining: int
    lost: tuple[str, ...]
    foreign: tuple[str, ...]
    contradicted: tuple[str, ...]
    duplicates: Counter[str]
    unexplained: Counter[str]
    order_breaks: tuple[str, ...]
    dead_lettered: tuple[str, ...]
    deliveries: int


def balance(account: Account) -> Balance:
    """Return the result of each accepted message; raises ValueError for names that were accepted twice."""
    names = [copy.name for copy in account.accepted]
    if len(set(names)) < len(names):
        raise ValueError("accepted: duplicate names, expected a unique name for each message")
    copies = Counter([*(copy.name for copy in account.delivered), *account.rejected])
    duplicates = Counter({name: count - 1 for name, count in copies.items() if count > 1})
    accounted = copies.keys() | account.withheld | account.remaining
    known = set(names)
    return Balance(
        accepted=len(names),
        delivered=len({copy.name for copy in account.delivered}),
        withheld=len(account.withheld),
        rejected=len(set(account.rejected)),
        remaining=len(account.remaining),
        lost=tuple(name for name in names if name not in accounted),
        foreign=tuple(sorted((accounted | set(account.dead_lettered)) - known)),
        contradicted=tuple(name for name in names if name in account.withheld and name in copies),
        duplicates=duplicates,
        unexplained=duplicates - account.repeatable,
        order_breaks=_order_breaks(account.accepted, account.delivered),
        dead_lettered=tuple(account.dead_lettered),
        deliveries=account.deliveries,
    )


def _order_breaks(accepted: Iterable[Copy], delivered: Iterable[Copy]) -> tuple[str, ...]:
    """Return the names of first copies that came after one that the source had accepted later, within their key."""
    position = {copy.name: number for number, copy in enumerate(accepted)}
    latest: dict[str, int] = {}
    seen: set[str] = set()
    breaks = []
    for copy in delivered:
        if copy.name in seen or copy.name not in position:
            continue
        seen.add(copy.name)
        if position[copy.name] < latest.get(copy.key, -1):
            breaks.append(copy.name)
        latest[copy.key] = max(latest.get(copy.key, -1), position[copy.name])
    return tuple(breaks)
