"""When the nightly timer starts the job, against Resource Manager and a storage account over HTTP."""

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import ContainerClient

from shared.errors import ConfigError, TargetRefused, TargetUnavailable
from shared.nightly.night import STALE, AttentionNeeded
from shared.nightly.settings import nightly_settings
from tests.management import Management, Trouble
from tests.wire.nightly.night import AT_TWO, DAY, Watch, lines


def test_job_is_started_once_for_the_day_that_has_ended(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    assert [watch.look(), watch.after(minutes=15), watch.after(minutes=15)] == [None, None, None]
    (started,) = management.started
    (job,) = management.template["containers"]
    assert started == {
        "containers": [
            {name: job[name] for name in ("name", "image", "env")}
            | {"args": [*job["args"], "--date", "2026-11-20"], "resources": {"cpu": 2, "memory": "4Gi"}}
        ]
    }


def test_job_starts_when_the_last_messages_of_the_day_have_had_time(
    management: Management, container: ContainerClient
) -> None:
    watch = Watch(container, management.job, datetime(2026, 11, 21, 0, 5, tzinfo=UTC))
    watch.look()  # a timer that is past due
    watch.after(hours=2)
    assert [each["containers"][0]["args"][-1] for each in management.started] == ["2026-11-19", "2026-11-20"]


def test_running_job_of_the_day_is_not_started_again(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    for day in ("2026-11-20", "2026-11-19", "2026-11-18"):  # two pages of them
        management.run({"containers": [{"args": ["--date", day]}]})
    watch = Watch(container, management.job)
    watch.look()
    assert management.started == []
    assert "already started by someone else" in caplog.text


@pytest.mark.parametrize(
    "trouble",
    [Trouble(409, "JobBusy"), Trouble(429, headers={"Retry-After": "7"}), Trouble(500), Trouble(503)],
    ids=lambda trouble: trouble.status,
)
def test_failed_start_is_retried(management: Management, container: ContainerClient, trouble: Trouble) -> None:
    watch = Watch(container, management.job)
    management.troubles["POST start"] = [trouble]
    watch.look()
    assert len(management.started) == 1
    assert watch.clock.now() - AT_TWO == timedelta(seconds=max(5, int(trouble.headers.get("Retry-After", 0))))


def test_a_start_whose_answer_is_lost_is_not_repeated(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    management.troubles["POST start"] = [Trouble(500, after_all=True)]
    watch.look()
    assert len(management.executions) == 1
    watch.after(minutes=15)
    assert len(management.executions) == 1


def test_start_that_keeps_failing_is_an_error_and_is_repeated_later(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(container, management.job)
    management.troubles["POST start"] = [Trouble(500)] * 3
    with pytest.raises(TargetUnavailable, match=r"job reconcile: .* busy or failing, 500 \(Trouble\)"):
        watch.look()
    assert "the job cannot be started" in lines(caplog, logging.ERROR)[0]
    watch.after(minutes=15)
    assert len(management.started) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_start_that_is_refused_is_an_error_at_once(
    management: Management, container: ContainerClient, status: int
) -> None:
    watch = Watch(container, management.job)
    management.troubles["POST start"] = [Trouble(status, "AuthorizationFailed")]
    with pytest.raises(TargetRefused, match="Container Apps Jobs Operator"):
        watch.look()
    assert management.requests.count("POST start") == 1
    watch.after(minutes=15)
    assert len(management.started) == 1


def test_identity_without_a_token_is_reported(
    management: Management, container: ContainerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_HEADER", "another")
    with pytest.raises(TargetRefused, match="no token for Azure Resource Manager"):
        Watch(container, management.job).look()


@pytest.mark.usefixtures("management")
def test_a_resource_manager_that_cannot_be_reached_is_unavailable(container: ContainerClient) -> None:
    watch = Watch(
        container, "http://127.0.0.1:9/subscriptions/s/resourceGroups/r/providers/Microsoft.App/jobs/reconcile"
    )
    with pytest.raises(TargetUnavailable, match="cannot be reached"):
        watch.look()


def test_a_container_that_is_missing_is_refused_and_nothing_started(
    management: Management, container: ContainerClient
) -> None:
    watch = Watch(container, management.job)
    container.delete_container()
    with pytest.raises(TargetRefused, match="the container does not exist"):
        watch.look()
    assert management.started == []


def test_two_instances_start_one_job_and_report_one_result(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)

    async def at_once() -> list[BaseException | None]:
        return await asyncio.gather(*(watch.instance().look() for _ in range(4)), return_exceptions=True)

    assert asyncio.run(at_once()) == [None] * 4
    assert len(management.started) == 1
    watch.write(1, verdict="findings", missing=1)
    results = asyncio.run(at_once())
    assert [type(result) for result in results if result is not None] == [AttentionNeeded]
    assert watch.telemetry.nights == ["findings"]


@pytest.mark.parametrize("had_started", [True, False])
def test_job_is_started_later_if_an_instance_died_between_claim_and_start(
    management: Management, container: ContainerClient, had_started: bool
) -> None:
    watch = Watch(container, management.job)
    claimed = {"date": str(DAY), "claimed": AT_TWO.isoformat(), "started": False, "told": []}
    container.upload_blob(f"nightly/{DAY}.json", json.dumps(claimed))
    if had_started:
        management.run({"containers": [{"args": ["--date=2026-11-20"]}]})
    watch.look()
    assert management.started == []
    watch.after(seconds=STALE.total_seconds())
    assert len(management.executions) == 1
    assert watch.note()["started"] is True


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"BUSWAY_NIGHTLY_JOB": "/subscriptions/s"}, "BUSWAY_RECONCILIATION"),
        ({"BUSWAY_RECONCILIATION": "http://a.example/c"}, "BUSWAY_RECONCILIATION"),
        ({"BUSWAY_RECONCILIATION": "https://a.example"}, "BUSWAY_RECONCILIATION"),
        ({"BUSWAY_RECONCILIATION": "https://a.example/c", "BUSWAY_NIGHTLY_JOB": "reconcile"}, "BUSWAY_NIGHTLY_JOB"),
        ({"BUSWAY_RECONCILIATION": "https://a.example/c", "BUSWAY_NIGHTLY_DUE": "6"}, "BUSWAY_NIGHTLY_DUE"),
        ({"BUSWAY_RECONCILIATION": "https://a.example/c", "BUSWAY_NIGHTLY_DUE": "01:00"}, "BUSWAY_NIGHTLY_DUE"),
    ],
)
def test_invalid_settings_are_reported(given: dict[str, str], path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        nightly_settings(given)
    assert [problem.path for problem in raised.value.problems] == [path]


def test_nothing_runs_without_settings() -> None:
    assert nightly_settings({"BUSWAY_NIGHTLY_JOB": "", "BUSWAY_RECONCILIATION": ""}) is None
