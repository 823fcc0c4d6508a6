"""
The oracles of a history in which an operator repaired or replayed.

1. Nothing is sent that nobody has asked for, that the ledger has as sent, whose answer had come, or that can be seen
   where it goes (`RerunProcess.begins_to_send`).
2. What is to be sent arrives at each target that lacks it, unless the last repair reports that there is no copy.
3. A message that arrived more often than once was named by a report: it may arrive twice.
4. Its stamps are those of the original.
5. A replay keeps the order of each key.
6. A repair that was not ended early reports each message of its manifest once, and what it reports is true.
7. The history of the app is still as it should be: `oracles.objections`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cli.repair.search import GOOD, Report, State
from shared.message.metadata import SEQUENCE
from tests.simulation import oracles
from tests.simulation.copies import properties_of
from tests.simulation.oracles import Place, planted
from tests.simulation.rerun import RerunWorld

_TWICE = "may arrive twice"


def objections(world: RerunWorld, found: Sequence[Place], outcomes: Mapping[str, str]) -> Iterator[str]:
    """Yield what went wrong."""
    names = frozenset(world.keys) | planted(world)
    yield from oracles.objections(world, found, outcomes, names)
    without_copy = {
        report.message.key for each in world.reports for report in each.reports if report.state is State.LOST
    }
    for place in found:
        if place.site != place.source.site:
            yield from _arrivals(world, place, without_copy)
    if world.reports and not world.is_complete(world.reports[-1]):
        last = world.reports[-1]
        reason = last.error or last.problems or [each.text for each in last.reports]
        yield f"the last run, in peace, ended with {reason}"
    for number, each in enumerate(world.reports, 1):
        yield from (f"report {number}: {text}" for text in _reports(world, each.reports, is_whole=each.error is None))


def _arrivals(world: RerunWorld, place: Place, without_copy: set[str]) -> Iterator[str]:
    """Yield what went wrong with what the command was to send to a place."""
    own = [arrival for arrival in place.arrived if world.is_own(arrival.content)]
    counts = Counter(arrival.name for arrival in own)
    counts.subtract({name: world.before[place.target, name] for name in counts})
    warned = {report.message.key for each in world.reports for report in each.reports if _TWICE in report.text}
    for name in (name for name in place.due if name in world.keys):
        key = world.keys[name]
        if counts[name] > 1 and not world.faults.injected:
            yield f"{place}: {name} was sent twice without a fault"
        is_known = world.plan is None and counts[name] > 1 and world.senders[place.target, name].has_reported
        if is_known and key not in warned:
            yield f"{place}: {name} has arrived twice, and no report has named it"
        is_due = name not in world.stale and (place.target, name) not in world.had
        if is_due and not counts[name] and key not in without_copy:
            yield f"{place}: {name} was not sent"
        if key in without_copy and world.has_copies(place.source):
            yield f"{place}: {name} is said to have no copy"
    for arrival in own:
        number = world.numbers.get(arrival.name)
        stamp = properties_of(arrival.content).get(SEQUENCE)
        last = "" if stamp is None else str(stamp.payload).rpartition(";")[2]
        if number is not None and arrival.name not in world.unnumbered and last != str(number):
            yield f"{place}: {arrival.name} has the number {last}, and had {number} at its source"
    firsts = list(dict.fromkeys(arrival.name for arrival in own if arrival.name in world.keys))
    if world.plan is not None:
        positions = {name: number for number, name in enumerate(place.originals)}
        highest: dict[str, int] = {}
        for name in firsts:
            draft = place.originals[name]
            if world.topology.has_order and positions[name] < highest.get(draft.key, -1):
                yield f"{place}: {name} was replayed out of order"
            highest[draft.key] = max(highest.get(draft.key, -1), positions[name])


def _reports(world: RerunWorld, reports: Sequence[Report], *, is_whole: bool) -> Iterator[str]:
    counts = Counter(report.message.key for report in reports)
    if world.plan is None and is_whole and counts.keys() != {*world.keys.values()}:
        yield f"{len(counts)} messages, of {len(world.keys)}"
    yield from (f"{key}: {count} times" for key, count in counts.items() if count > 1)
    for report in reports:
        if report.state not in {*GOOD, State.LOST, State.FAILED} or report.state in {State.WAITS, State.WITHHELD}:
            yield f"{report.state} {report.message.name}: {report.text}"
