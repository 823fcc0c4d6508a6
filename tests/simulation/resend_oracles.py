"""
The oracles of a history in which messages were sent again.

1. Every message is exactly once at its source, at the target, or taken from one of them; never twice, never nowhere.
   What was deleted with its entity may be sent again.
2. One may be at its source and at the target if the last run has named it.
3. A run names a message as unclear only if something has happened that hides the answer.
4. The messages of a session arrive in their order.
5. What a run reports adds up with what it was to send, and with what lies where.
6. Nothing of the runs is left at the target.
"""

from collections import Counter
from collections.abc import Iterator

from tests.simulation.resend import Copy, ResendWorld


def objections(world: ResendWorld) -> Iterator[str]:
    """Yield what went wrong."""
    arrived = [copy for place in world.backlog.copies for copy in world.copies(*place)]
    yield from _conservation(world, arrived)
    yield from _order(world)
    yield from _reports(world)
    # What a run has scheduled stays until its number is known and in the ledger: the next look at the target finds it.
    steps = "(manage)", "(record)", "kill", "site unreachable", "target disabled"
    interrupted = sum(count for what, count in world.faults.injected.items() if any(step in what for step in steps))
    # A mark stays while something is not clear that its run has sent.
    last = world.reports[-1].result.left.values() if world.reports else ()
    unclear = sum("unclear" in reason or "locked there" in reason for reason in last)
    if world.probes() > interrupted + unclear:
        yield f"{world.probes()} messages are still scheduled at the target"


def _conservation(world: ResendWorld, arrived: list[Copy]) -> Iterator[str]:
    copies, remaining, taken = Counter(copy.name for copy in arrived), {*world.at_source()}, {*world.taken}
    left = {world.names[key]: reason for key, reason in world.reports[-1].left.items()} if world.reports else {}
    for letter in world.accepted:
        name = letter.name
        # The lock on one that was sent may be lost: another receiver of the source can take it then.
        if copies[name] > 1:
            yield f"{name}: {copies[name]} copies"
        if not copies[name] and name not in remaining | taken | world.deleted:
            yield f"{name}: lost"
        if name in remaining and name not in left:
            yield f"{name}: still at the source, and no run has named it"
        if name in remaining and copies[name] and "unclear" not in left.get(name, ""):
            yield f"{name}: at the source and at the target, and left because: {left.get(name)}"
        if "unclear" in left.get(name, "") and not _is_hidden(world):
            yield f"{name}: {left[name]}, although nobody has taken anything there"
        if letter.is_heavy and copies[name] and not world.has_hub:
            yield f"{name}: arrived, and the target refuses it"


def _is_hidden(world: ResendWorld) -> bool:
    """Return whether something may have hidden what happened to a message."""
    return bool(not world.backlog.shows_numbers or world.foreign or world.lives.total() or any(world.consumed.values()))


def _order(world: ResendWorld) -> Iterator[str]:
    numbers = {letter.name: number for number, letter in enumerate(world.accepted)}
    keys = {letter.name: letter.key for letter in world.accepted}
    for site, path in world.backlog.copies:
        last: dict[str, int] = {}
        for copy in world.copies(site, path):
            key = keys[copy.name]
            if numbers[copy.name] < last.get(key, -1):
                yield f"{site}/{path}: {copy.name} is out of order"
            last[key] = max(last.get(key, -1), numbers[copy.name])


def _reports(world: ResendWorld) -> Iterator[str]:
    for number, report in enumerate(world.reports, 1):
        result, wanted = report.result, len(report.wanted)
        if report.wanted and result.completed + result.gone + len(result.left) != wanted:
            counts = f"{result.completed} completed, {result.gone} gone, {len(result.left)} left"
            yield f"report {number}: {counts}, of {wanted}"
        if report.wanted and result.is_complete and result.sent + result.sent_before + result.gone != wanted:
            counts = f"{result.sent} sent, {result.sent_before} before, {result.gone} gone"
            yield f"report {number}: {counts}, of {wanted}"
        if result.gone > len(world.taken):
            yield f"report {number}: {result.gone} gone, and {len(world.taken)} were taken"
