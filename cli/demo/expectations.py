"""
What must be true once everything has arrived.

1. Every delivery that a pattern promises happens once. A further one is a duplicate; a message that returns to a site
   that it has left has bounced.
2. The events of one session that were sent on one site arrive in the order in which they were sent.
3. Body, properties with their types, and broker properties are those that were sent, except for the documented stamps.
4. A job is delivered as often as its queue allows on each site where its consumer fails.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from cli.demo.fidelity import changes
from cli.demo.messages import PAIR, WEST, Pattern, Sample
from cli.demo.observations import ENTITIES, Delivery, Observations, Place, Receipt, deliveries
from shared.message.message import Message
from shared.message.metadata import ENQUEUE_TIME, SEPARATOR, visited_sites

AS_SENT = ", as sent"
AUXILIARY_WAY = " → auxiliary"

MAX_DELIVERY_COUNT = 3
"""How often a site delivers a job: the value in infra/emulators."""


@dataclass
class Verdict:
    """
    The results for the messages of one pattern on one way.

    Units: lags in milliseconds, from the arrival at the source to that at the target; for jobs from the last failure.
    """

    pattern: Pattern
    way: str
    sent: int = 0
    arrived: int = 0
    duplicates: int = 0
    order_breaks: int = 0
    bounced: int = 0
    changes: int = 0
    lags: list[int] = field(default_factory=list)
    differences: dict[str, list[str]] = field(default_factory=dict)
    """For each difference, the messages and places where it was found."""

    def differs(self, about: str, what: str) -> None:
        """Record the difference *what* for *about*, a message at a place."""
        self.differences.setdefault(what, []).append(about)


def judge(observations: Observations) -> list[Verdict]:
    """Return a verdict for every pattern and way with messages, in the order of the patterns."""
    verdicts: dict[tuple[Pattern, str], Verdict] = {}
    arrived: dict[tuple[str, Place], list[Receipt]] = {}
    for receipt in observations.receipts:
        arrived.setdefault((receipt.message_id, receipt.place), []).append(receipt)
    for sample in observations.samples.values():
        for delivery in deliveries(sample):
            way = way_of(sample, delivery)
            verdict = verdicts.setdefault((sample.pattern, way), Verdict(sample.pattern, way))
            receipts = arrived.pop((sample.message_id, delivery.place), [])
            _count(verdict, sample, delivery, receipts, observations)
        # Where it is not expected.
        for site in (sample.site, PAIR[sample.site]):
            for entity in ENTITIES[sample.pattern]:
                for receipt in arrived.get((sample.message_id, Place(site, entity)), ()):
                    _blame_extra(verdict, sample, receipt)
    for verdict in verdicts.values():
        if verdict.pattern is Pattern.ALL_ACTIVE:
            _check_order(verdict, observations)

    def place(verdict: Verdict) -> tuple[object, ...]:
        # Copies before messages that stayed, shorter ways before longer.
        way = verdict.way
        return (list(Pattern).index(verdict.pattern), way.endswith(AS_SENT), len(way), not way.startswith(WEST), way)

    return sorted(verdicts.values(), key=place)


def foreign_receipts(observations: Observations) -> list[str]:
    """Return a line for each message that the demo has not sent."""
    return [
        f"{receipt.place}: a message arrived that the demo did not send"
        for receipt in observations.receipts
        if receipt.message_id not in observations.samples
    ]


def way_of(sample: Sample, delivery: Delivery) -> str:
    """Return the way of a delivery as the report names it."""
    own, pair = sample.site, PAIR[sample.site]
    if not delivery.is_copy:
        return f"{own}{AS_SENT}"
    if sample.failures > 1:
        return f"{own} → {pair}{AUXILIARY_WAY}"
    return f"{own} → {pair}"


def _count(
    verdict: Verdict, sample: Sample, delivery: Delivery, receipts: Sequence[Receipt], observations: Observations
) -> None:
    about = f"{sample.message_id} at {delivery.place}"
    verdict.sent += 1
    if not receipts:
        verdict.differs(about, "did not arrive")
        return
    verdict.arrived += 1
    for extra in receipts[1:]:
        _blame_extra(verdict, sample, extra)
    found = list(changes(sample, receipts[0].message, is_copy=delivery.is_copy))
    if sample.pattern is Pattern.SPILLOVER:
        found += _wrong_attempts(sample, observations.abandoned)
    verdict.changes += len(found)
    for change in found:
        verdict.differs(about, change)
    lag = _lag(sample, receipts[0].message, observations) if delivery.is_copy else None
    if lag is not None:
        verdict.lags.append(lag)


def _blame_extra(verdict: Verdict, sample: Sample, receipt: Receipt) -> None:
    visited = visited_sites(receipt.message)
    about = f"{sample.message_id} at {receipt.place}"
    if receipt.place.site in visited:
        verdict.bounced += 1
        verdict.differs(about, f"came back there, after visiting {' and '.join(visited)}")
    else:
        verdict.duplicates += 1
        verdict.differs(about, "arrived there more than once")


def _check_order(verdict: Verdict, observations: Observations) -> None:
    latest: dict[str | None, int] = {}
    for receipt in observations.receipts:
        sample = observations.samples.get(receipt.message_id)
        if sample is None or sample.pattern is not verdict.pattern:
            continue
        delivery = next((delivery for delivery in deliveries(sample) if delivery.place == receipt.place), None)
        if delivery is None or way_of(sample, delivery) != verdict.way:
            continue
        before = latest.get(sample.session_id, 0)
        # An equal number is the same message again, which is counted as a duplicate.
        if sample.number < before:
            verdict.order_breaks += 1
            verdict.differs(f"{sample.message_id} at {receipt.place}", f"came after number {before} of its session")
        latest[sample.session_id] = max(before, sample.number)


def _wrong_attempts(sample: Sample, abandoned: Mapping[tuple[str, str], Sequence[int]]) -> Iterator[str]:
    """Yield each site that did not deliver a job as often as its queue allows before it was dead-lettered."""
    for index, site in enumerate((sample.site, PAIR[sample.site])):
        attempts = len(abandoned.get((sample.message_id, site), ()))
        expected = MAX_DELIVERY_COUNT if index < sample.failures else 0
        if attempts != expected:
            yield f"its consumer failed {attempts} times at {site}, expected {expected}"


def _lag(sample: Sample, message: Message, observations: Observations) -> int | None:
    enqueued = message.arrival.enqueued_time
    if enqueued is None:
        return None
    if sample.pattern is Pattern.SPILLOVER:
        site = sample.site if sample.failures == 1 else PAIR[sample.site]
        failures = observations.abandoned.get((sample.message_id, site))
        return max(enqueued - failures[-1], 0) if failures else None
    stamp = message.application_property(ENQUEUE_TIME)
    text = "" if stamp is None else str(stamp.payload).rsplit(SEPARATOR, maxsplit=1)[-1]
    try:
        return enqueued - round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None  # a wrong stamp, which is reported as a change
