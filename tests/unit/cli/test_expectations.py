import io
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from busway import ROOT
from busway_broker.config_file import load_config
from cli.demo.applications import encoded
from cli.demo.demo import with_journal
from cli.demo.expectations import MAX_DELIVERY_COUNT, Verdict, foreign_receipts, judge, way_of
from cli.demo.fidelity import PAYMENT_LIFE
from cli.demo.messages import PAIR, Pattern, Sample, Template, samples
from cli.demo.observations import AUXILIARY, Delivery, Observations, Place, Receipt, deliveries
from cli.demo.report import print_report
from shared.amqp.values import Value, int_, long, string
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.tasks.files import load

TEMPLATE = Template(b'{"action":"opened"}', "octo/repo", {"event": string("issues")}, "issues", "application/json", "c")


def received(sample: Sample, delivery: Delivery, changes: Mapping[str, Value | None] | None = None) -> Receipt:
    """Return the receipt of *sample* as it should arrive, with *changes* to its properties."""
    message = Message.received(encoded(sample).content, Origin(*delivery.place))
    stamps: dict[str, Value | None] = {}
    if delivery.is_copy:
        hops = max(sample.failures, 1)
        sites = [sample.site, PAIR[sample.site]][:hops]
        stamps["repl-path"] = string(";".join(sites))
        stamps["repl-enqueue-time"] = string(";".join(["2026-01-31T12:00:00.000Z"] * hops))
        stamps["repl-sequence"] = string(";".join(["7"] * hops))
        if sample.pattern is Pattern.SPILLOVER:
            stamps["repl-dlq-reason"] = string(";".join(["MaxDeliveryCountExceeded"] * hops))
            stamps["repl-dlq-description"] = string("it failed")
            stamps["repl-dlq-source"] = string(";".join(["jobs"] * hops))
        else:
            stamps["replication"] = long(1)
        if sample.pattern is Pattern.ACTIVE_PASSIVE:
            message.time_to_live = PAYMENT_LIFE
    message.set_properties({**stamps, **(changes or {})})
    arrival = Arrival(message.arrival.origin, 1, None, 1_769_860_800_250, None, None)
    return Receipt(delivery.place, sample.message_id, Message(message.sections, arrival))


def observed(made: list[Sample], spoil: Callable[[Observations], object] = lambda _: None) -> list[Verdict]:
    """Return the verdicts on a run in which everything went well, except what *spoil* does to the observations."""
    observations = Observations(made, lambda _: None)
    for sample in made:
        for delivery in deliveries(sample):
            observations.note(received(sample, delivery))
        for site in (sample.site, PAIR[sample.site])[: sample.failures]:
            for moment in (100, 200, 300):
                observations.note_failure(sample.message_id, site, 1_769_860_800_000 + moment)
    assert observations.is_complete
    spoil(observations)
    return judge(observations)


@pytest.fixture
def made() -> list[Sample]:
    return samples([TEMPLATE], 80)


def way(verdicts: list[Verdict], pattern: Pattern, name: str) -> Verdict:
    (found,) = (verdict for verdict in verdicts if (verdict.pattern, verdict.way) == (pattern, name))
    return found


def printed(verdicts: list[Verdict], others: Sequence[str] = (), *, width: int = 160) -> str:
    """Return the report as text, which is a success if nothing differs."""
    console = Console(highlight=False, markup=False, width=width, record=True, file=io.StringIO())
    has_passed = print_report(console, verdicts, others, 80, 1.0)
    assert has_passed == (not others and not any(verdict.differences for verdict in verdicts))
    return console.export_text().strip()


def test_a_run_without_faults_has_no_differences(made: list[Sample]) -> None:
    verdicts = observed(made)
    assert [verdict.differences for verdict in verdicts if verdict.differences] == []
    assert sum(verdict.sent for verdict in verdicts) == sum(verdict.arrived for verdict in verdicts) == 148
    assert way(verdicts, Pattern.ALL_ACTIVE, "west → east").lags == [250] * 28
    text = " ".join(printed(verdicts).split())
    assert text.startswith("All expectations hold: 80 messages, 148 deliveries in 1.0 s (72 where they ")
    # Why the journals count other messages than were sent.
    assert "4 jobs never failed, so no task took them, and 2 were carried by two tasks." in text


def test_the_report_fits_a_terminal() -> None:
    verdicts = observed(samples([TEMPLATE], 40))
    for verdict in verdicts:
        verdict.sent = verdict.arrived = 100_000
        verdict.lags = [lag + 1_000_000 for lag in verdict.lags]
    for width in (80, 100, 160):
        lines = printed(verdicts, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if "…" in line]
        events = next(line.split() for line in lines if line.startswith("  west, as sent"))
        assert events[3:] == ["100000", "100000", "0", "0", "0", "0", "0"]


def test_a_message_that_did_not_arrive_is_lost(made: list[Sample]) -> None:
    gone = made[0]
    verdicts = observed(made, lambda seen: seen.receipts.remove(seen.receipts[1]))
    verdict = way(verdicts, Pattern.ALL_ACTIVE, "west → east")
    assert (verdict.sent, verdict.arrived) == (28, 27)
    about = f"{gone.message_id} at east/events/Subscriptions/application"
    assert verdict.differences == {"did not arrive": [about]}
    out = printed(verdicts, ["west/jobs-rejected: 1 messages, expected none"])
    assert "FAILED: 2 differences" in out
    assert f"events, west → east: {about}: did not arrive" in out
    assert "west/jobs-rejected: 1 messages" in out


def test_a_message_that_arrives_twice_comes_back_or_goes_astray_is_counted(made: list[Sample]) -> None:
    own, copy = deliveries(made[0])
    job = next(sample for sample in made if sample.pattern is Pattern.SPILLOVER and not sample.failures)
    stray = Delivery(job.message_id, Place(job.site, AUXILIARY), is_copy=False)

    def counts(receipt: Callable[[Observations], Receipt]) -> tuple[int, int]:
        verdicts = observed(made, lambda seen: seen.receipts.append(receipt(seen)))
        return sum(verdict.duplicates for verdict in verdicts), sum(verdict.bounced for verdict in verdicts)

    assert counts(lambda seen: seen.receipts[0]) == (1, 0)
    assert counts(lambda _: replace(received(made[0], copy), place=own.place)) == (0, 1)
    assert counts(lambda _: received(job, stray)) == (1, 0)


def test_swapped_messages_of_a_session_break_its_order(made: list[Sample]) -> None:
    copies = {
        (sample.message_id, delivery.place)
        for sample in made
        for delivery in deliveries(sample)
        if (sample.pattern, way_of(sample, delivery)) == (Pattern.ALL_ACTIVE, "east → west")
    }

    def swap(seen: Observations) -> None:
        first, second, *_ = (
            index for index, each in enumerate(seen.receipts) if (each.message_id, each.place) in copies
        )
        seen.receipts[first], seen.receipts[second] = seen.receipts[second], seen.receipts[first]

    verdicts = observed(made, swap)
    assert [verdict.way for verdict in verdicts if verdict.order_breaks] == ["east → west"]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"typed-long": int_(1)}, "property typed-long is int, sent as long"),
        ({"typed-guid": None}, "property typed-guid (uuid) is missing"),
        ({"event": string("other")}, "property event has another value, sent as string"),
        ({"new": int_(1)}, "property new (int) was not sent"),
        ({"replication": int_(1)}, "stamp replication is int 1, expected long 1"),
        ({"repl-path": string("east")}, "stamp repl-path is string 'east', expected string 'west'"),
        ({"repl-enqueue-time": string("now")}, "stamp repl-enqueue-time is string 'now'"),
        ({"repl-sequence": None}, "stamp repl-sequence is missing"),
        ({"DeadLetterReason": string("x")}, "property DeadLetterReason (string) was not sent"),
        # A stamp that the pages name.
        ({"RuleName": string("not-replicated")}, None),
    ],
)
def test_every_change_of_a_property_is_reported(
    made: list[Sample], changes: Mapping[str, Value | None], difference: str | None
) -> None:
    _, copy = deliveries(made[0])

    def change(seen: Observations) -> None:
        seen.receipts[1] = received(made[0], copy, changes)

    verdict = way(observed(made, change), Pattern.ALL_ACTIVE, "west → east")
    assert verdict.changes == (difference is not None)
    assert difference is None or difference in next(iter(verdict.differences))


def test_changes_of_body_and_broker_properties_are_reported(made: list[Sample]) -> None:
    def change(seen: Observations) -> None:
        message = seen.receipts[0].message
        message.body = b"other"
        message.subject = "other"
        message.correlation_id = None
        message.time_to_live = 1

    sample = replace(made[0], time_to_live=600_000)
    verdict = way(observed([sample, *made[1:]], change), Pattern.ALL_ACTIVE, "west, as sent")
    assert verdict.changes == 4
    life = "the time to live is 1 ms, expected 600000 ms"
    assert {*verdict.differences} == {"the body differs", "the subject differs", "the correlation id differs", life}


def test_a_payment_must_live_for_two_minutes(made: list[Sample]) -> None:
    payment = next(sample for sample in made if sample.pattern is Pattern.ACTIVE_PASSIVE)
    _, copy = deliveries(payment)

    def change(seen: Observations) -> None:
        (receipt,) = (
            each for each in seen.receipts if (each.place, each.message_id) == (copy.place, payment.message_id)
        )
        receipt.message.time_to_live = None

    assert way(observed(made, change), Pattern.ACTIVE_PASSIVE, "west → east").changes == 1


def test_a_job_must_be_tried_as_often_as_its_queue_allows(made: list[Sample]) -> None:
    job = next(sample for sample in made if sample.failures == 2)
    verdicts = observed(made, lambda seen: seen.abandoned[job.message_id, job.site].pop())
    differences = [difference for verdict in verdicts for difference in verdict.differences]
    assert differences == [f"its consumer failed 2 times at {job.site}, expected 3"]


@pytest.mark.parametrize("site", ["west", "east"])
def test_the_number_of_attempts_is_that_of_the_queue(site: str) -> None:
    (namespace,) = load_config([Path(__file__).parents[3] / f"infra/emulators/{site}.json"])
    (jobs,) = (queue for queue in namespace.queues if queue.name == "jobs")
    assert jobs.max_delivery_count == MAX_DELIVERY_COUNT


def test_foreign_messages_are_reported(made: list[Sample]) -> None:
    observations = Observations([], lambda _: None)
    observations.note(received(made[0], next(deliveries(made[0]))))
    text = "west/events/Subscriptions/application: a message arrived that the demo did not send"
    assert foreign_receipts(observations) == [text]


def test_the_demo_leaves_out_the_tasks_that_somebody_has_written_beside_its_own(tmp_path: Path) -> None:
    config = Path(shutil.copytree(ROOT / "config", tmp_path / "config"))
    (config / "tasks" / "mine.yaml").write_text("task: no task at all\n")
    (config / "topology.yaml").write_text("no: topology\n")
    found = load(with_journal(tmp_path / "logs", config))
    assert {task.source.topic or task.source.queue for task in found.tasks} == {"events", "jobs", "payments"}
    assert found.journal is not None
