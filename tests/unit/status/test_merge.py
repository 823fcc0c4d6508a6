"""One status from the reports of several instances and a look into the entities."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.message.waiting import PartitionEnd, Waiting
from shared.status.facts import Look, TaskPlaces
from shared.status.merge import instance_status, points, task_status
from shared.status.model import DeadLetters, Health, Place, State, TaskStatus
from shared.status.report import Control, HourReport, InstanceReport, Minute, Outage, Reject, TaskReport
from shared.status.store import Found, FoundHour, Reports
from shared.status.verdict import duration, verdict

NOW = datetime(2026, 11, 23, 10, 30, 15, tzinfo=UTC)
MINUTE = int(NOW.timestamp()) // 60
PLACES = TaskPlaces("copy", Place("west", "orders"), "service-bus", [Place("east", "orders")], None, 2)
EMPTY = Look(Waiting(0))
OUTAGE = Outage("east/orders", "refused", "east/orders: it is disabled", 0)


def at(seconds_ago: float) -> int:
    return round((NOW - timedelta(seconds=seconds_ago)).timestamp() * 1000)


def instance(*tasks: TaskReport, name: str = "one", age: float = 2, clock_ahead: float = 0) -> Found:
    """Return what an instance wrote *age* seconds ago; its own times are those of a clock that is ahead."""
    report = InstanceReport(1, name, at(600), at(age) + round(clock_ahead * 1000), list(tasks))
    return Found(name, report, NOW - timedelta(seconds=age))


def copy(**options: Any) -> TaskReport:
    return TaskReport("copy", **options)


def status(
    *found: Found,
    look: Look = EMPTY,
    history: tuple[FoundHour, ...] = (),
    controls: dict[str, Control] | None = None,
    places: TaskPlaces = PLACES,
) -> TaskStatus:
    return task_status(places, look, Reports(NOW, found, controls or {}), history, NOW)


def waiting(messages: int, age: float = 3) -> Look:
    return Look(Waiting(messages, False, at(age)))


def test_a_task_with_a_batch_in_the_last_minute_is_running() -> None:
    assert status(instance(copy(last_batch=at(50)))).state is State.RUNNING
    assert status(instance(copy(in_hand=5, last_batch=at(500)))).state is State.RUNNING


def test_a_task_for_which_nothing_waits_is_idle_even_without_an_instance() -> None:
    assert status(instance(copy(last_batch=at(61)))).state is State.IDLE
    alone = status()
    assert (alone.state, alone.reason) == (State.IDLE, "nothing waits, and no instance reports")


def test_messages_that_wait_without_an_instance_stop_a_task_after_a_minute() -> None:
    assert status(look=waiting(5, 59)).state is State.IDLE
    found = status(look=waiting(5, 61))
    assert (found.state, found.reason) == (State.STOPPED, "messages wait, and no instance reports")


def test_messages_that_no_instance_takes_stop_a_task() -> None:
    found = status(instance(copy(last_batch=at(300))), look=waiting(5, 200))
    assert found.state is State.STOPPED
    assert found.reason == "messages wait, and no instance has taken a message since 2026-11-23T10:25:15Z"


def test_a_batch_that_waits_for_a_target_holds_the_task() -> None:
    outage = Outage("east/orders", "refused", "east/orders: it is disabled", at(120))
    found = status(instance(copy(in_hand=10, last_batch=at(1), outages=[outage])), look=waiting(10))
    assert (found.state, found.reason, found.since) == (
        State.HELD, "east/orders: it is disabled", "2026-11-23T10:28:15Z",
    )  # fmt: skip
    assert [obstacle.place for obstacle in found.obstacles] == ["east/orders"]


def test_an_outage_is_since_the_first_instance_saw_it() -> None:
    outages = [Outage("east/orders", "unavailable", "no answer", at(ago)) for ago in (100, 300)]
    found = status(
        *(instance(copy(in_hand=1, outages=[outage]), name=outage.text + str(outage.since)) for outage in outages)
    )
    assert found.since == "2026-11-23T10:25:15Z"


def test_an_outage_that_nothing_waits_for_holds_nothing() -> None:
    assert status(instance(copy(outages=[OUTAGE]))).state is State.IDLE


def test_a_batch_that_fails_for_another_reason_stops_the_task() -> None:
    report = copy(last_batch=at(5), error="copy: 100 messages in a row were rejected", error_since=at(40))
    found = status(instance(report), look=waiting(10))
    assert (found.state, found.reason) == (State.STOPPED, "copy: 100 messages in a row were rejected")


def test_a_source_that_cannot_be_opened_stops_the_task() -> None:
    look = Look("west/orders: it is disabled", (), is_source_refused=True)
    found = status(instance(copy(last_batch=at(5))), look=look)
    assert (found.state, found.reason) == (State.STOPPED, "west/orders: it is disabled")


def test_an_operator_pauses_a_task() -> None:
    control = Control(paused=True, since="2026-11-23T09:00:00Z", by="ops\x1b[31m", reason="maintenance of east")
    found = status(look=waiting(5, 7200), controls={"copy": control})
    assert (found.state, found.since) == (State.PAUSED, "2026-11-23T09:00:00Z")
    assert found.reason == r"paused by ops\x1b[31m: maintenance of east"
    assert status(look=waiting(5, 7200), controls={"copy": Control()}).state is State.STOPPED


def test_an_instance_that_no_longer_reports_is_gone_and_not_running() -> None:
    gone = instance(copy(in_hand=7, rate=3.0, last_batch=at(62), outages=[OUTAGE]), age=61)
    assert instance_status(gone, NOW).alive is False
    found = status(gone, look=waiting(7, 90))
    assert (found.state, found.instances, found.in_hand, found.rate) == (State.STOPPED, 0, 0, 0.0)
    assert found.heartbeat == "2026-11-23T10:29:14Z"


def test_instances_and_lanes_are_one_task() -> None:
    found = status(
        instance(copy(in_hand=2, rate=1.25, last_batch=at(9), minutes=[Minute(MINUTE, sent=5)])),
        instance(copy(in_hand=3, rate=2.5, last_batch=at(4), minutes=[Minute(MINUTE, sent=7, rejected=1)]), name="two"),
        instance(TaskReport("other", in_hand=100), name="three"),
    )
    assert (found.instances, found.lanes, found.in_hand, found.rate) == (2, 2, 5, 3.75)
    assert found.last_hour is not None
    assert (found.last_hour.sent, found.last_hour.rejected) == (12, 1)
    assert found.last_batch == "2026-11-23T10:30:11Z"


def test_a_minute_of_history_is_replaced_by_the_report_of_the_same_instance() -> None:
    old = FoundHour("one", HourReport(1, {"copy": [Minute(MINUTE, sent=3), Minute(MINUTE - 1, sent=4)]}))
    gone = FoundHour("gone", HourReport(1, {"copy": [Minute(MINUTE - 59, sent=100), Minute(MINUTE - 60, sent=7)]}))
    found = status(instance(copy(minutes=[Minute(MINUTE, sent=5)])), history=(old, gone))
    assert found.last_hour is not None
    assert found.last_hour.sent == 5 + 4 + 100
    chart = points((old, gone), None, "copy", MINUTE - 1, MINUTE)
    assert [(point.time, point.sent) for point in chart] == [("2026-11-23T10:29:00Z", 4), ("2026-11-23T10:30:00Z", 3)]


def test_times_of_an_instance_are_those_of_the_storage_account() -> None:
    found = instance(copy(last_batch=at(-35)), clock_ahead=40)
    assert status(found).last_batch == "2026-11-23T10:30:10Z"
    assert instance_status(found, NOW).clock_ahead == 40.0


def test_what_is_not_known_is_unknown_with_the_reason_and_never_0() -> None:
    look = Look("west: does not answer", [DeadLetters(Place("west", "orders"), unknown="no permission")])
    found = status(instance(copy(last_batch=at(5))), look=look)
    assert (found.backlog, found.lag) == (None, None)
    assert found.unknown["backlog"] == "west: does not answer"
    assert found.state is State.RUNNING
    blind = task_status(PLACES, look, "the app has no journal", (), NOW)
    assert (blind.state, blind.in_hand, blind.rate, blind.last_hour) == (State.UNKNOWN, None, None, None)
    assert blind.reason == "the app has no journal"
    assert set(blind.unknown) >= {"backlog", "lag", "in_hand", "rate", "last_hour", "instances", "heartbeat"}


def test_without_reports_a_backlog_of_nothing_does_not_prove_that_a_task_runs() -> None:
    assert task_status(PLACES, EMPTY, "no journal", (), NOW).state is State.UNKNOWN


def test_the_last_rejects_of_all_instances_are_listed() -> None:
    rejects = [Reject(at(ago), f"m-{ago}", "too large") for ago in (5, 40)]
    found = status(*(instance(copy(rejects=[reject]), name=str(reject.message_id)) for reject in rejects))
    assert [recent_reject.message_id for recent_reject in found.recent_rejects] == ["m-5", "m-40"]


HUB = TaskPlaces("copy", Place("west", "orders"), "event-hubs", [], None, is_hub=True)


def ends(**partitions: tuple[int, float]) -> Look:
    return Look(
        {name[1:]: PartitionEnd(0, last, at(age), is_empty=last < 0) for name, (last, age) in partitions.items()}
    )


def test_the_backlog_of_a_hub_is_what_follows_the_last_settled_event() -> None:
    seen = instance(copy(positions={"0": 90, "1": 5}, last_batch=at(3), in_hand=4, oldest_in_hand=at(8)))
    found = status(seen, look=ends(p0=(100, 2), p1=(5, 500), p2=(-1, 0)), places=HUB)
    assert (found.backlog, found.lag, found.lag_is_minimum) == (10, 8.0, False)


def test_without_a_batch_in_progress_the_lag_of_a_hub_is_a_minimum() -> None:
    found = status(instance(copy(positions={"0": 90})), look=ends(p0=(100, 2)), places=HUB)
    assert (found.backlog, found.lag, found.lag_is_minimum) == (10, 2.0, True)


@pytest.mark.parametrize(("age", "state"), [(140, State.IDLE), (160, State.STOPPED)])
def test_a_partition_of_a_hub_waits_for_its_next_owner_before_the_task_counts_as_stopped(
    age: float, state: State
) -> None:
    # FN24: two to two and a half minutes after each restart of the app.
    found = status(instance(copy(positions={"0": 90}, last_batch=at(300))), look=ends(p0=(91, age)), places=HUB)
    assert found.state is state


def test_a_partition_that_no_instance_has_read_makes_the_backlog_unknown() -> None:
    found = status(instance(copy(positions={"0": 90})), look=ends(p0=(90, 2), p1=(3, 2)), places=HUB)
    assert found.backlog is None
    assert found.unknown["backlog"] == "no instance has reported how far it has read partition 1"


@pytest.mark.parametrize("last", [40, -1])
def test_positions_behind_the_end_of_a_hub_are_those_of_an_earlier_one(last: int) -> None:
    # EH05: the service refuses to read until the hub has passed them, and what came before is never read.
    found = status(instance(copy(positions={"0": 90}, last_batch=at(3))), look=ends(p0=(last, 2)), places=HUB)
    assert (found.state, found.backlog) == (State.STOPPED, None)
    assert found.reason is not None
    assert found.reason.startswith(f"partition 0 has been read to sequence number 90, and ends at {last}: the hub was")
    assert "busway checkpoints" in found.reason


def test_a_partition_whose_events_have_expired_has_no_backlog() -> None:
    look = Look({"0": PartitionEnd(500, 520, at(2), is_empty=False)})
    found = status(instance(copy(positions={"0": 90})), look=look, places=HUB)
    assert found.backlog == 21


@pytest.mark.parametrize(
    ("states", "unknown", "health", "beginning"),
    [
        ((State.RUNNING, State.IDLE), (), Health.OK, "2 tasks: 1 running, 1 idle; nothing waits."),
        ((State.PAUSED,), (), Health.OK, "1 task: 1 paused; nothing waits."),
        ((State.HELD, State.UNKNOWN), ("x",), Health.ATTENTION, "1 of 2 tasks needs attention: t0 is held."),
        ((State.STOPPED,) * 5, (), Health.ATTENTION, "5 of 5 tasks need attention: t0 is stopped, "),
        ((State.RUNNING, State.UNKNOWN), (), Health.UNKNOWN, "The state of 1 of 2 tasks is unknown: "),
        ((State.RUNNING,), ("west does not answer",), Health.UNKNOWN, "No task is known to need attention, but"),
        ((), (), Health.OK, "0 tasks: none; nothing waits."),
    ],
)
def test_the_verdict_is_one_sentence(
    states: tuple[State, ...], unknown: tuple[str, ...], health: Health, beginning: str
) -> None:
    place = Place("west", "orders")
    tasks = [
        TaskStatus(
            task=f"t{number}", state=state, reason="why", source=place, source_kind="service-bus", targets=[], backlog=0
        )
        for number, state in enumerate(states)
    ]
    found, sentence = verdict(tasks, unknown)
    assert found is health
    assert sentence.startswith(beginning)


def test_a_duration_has_the_unit_that_suits() -> None:
    assert [duration(each) for each in (0, 9.94, 59, 60, 3599, 3600, 90_000)] == [
        "0.0 s", "9.9 s", "59 s", "1 min", "60 min", "1.0 h", "1.0 d",
    ]  # fmt: skip
