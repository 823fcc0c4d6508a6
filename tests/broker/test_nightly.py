"""The nightly timer against Resource Manager and a storage account that it talks to over HTTP."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from shared.clock import ManualClock
from shared.errors import ConfigError, TargetRefused, TargetUnavailable
from shared.nightly.container_job import ContainerJob
from shared.nightly.night import STALE, AttentionNeeded, Night
from shared.nightly.settings import nightly_settings
from tests.azurite import running_azurite
from tests.fakes import sleep_by
from tests.management import Management, Trouble

DAY = date(2026, 11, 20)
RUN = "2026-11-20T00--2026-11-21T00"
AT_TWO = datetime(2026, 11, 21, 2, tzinfo=UTC)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture
def management(monkeypatch: pytest.MonkeyPatch) -> Iterator[Management]:
    with Management() as running:
        for name, value in running.identity().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def container(storage: str, request: pytest.FixtureRequest) -> Iterator[ContainerClient]:
    name = f"c{abs(hash(request.node.name))}"
    with ContainerClient.from_connection_string(storage, name) as client:
        client.create_container()
        yield client


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "busway")
    yield
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("busway")]
    assert not [text for text in lines if "sig=" in text or "secret-4711" in text]


class Counters:
    """Counts findings and nights."""

    def __init__(self) -> None:
        self.findings: Counter[tuple[str, str]] = Counter()
        self.nights: list[Any] = []

    def finding(self, task: str, verdict: str, count: int) -> None:
        self.findings[task, verdict] += count

    def night(self, verdict: str) -> None:
        self.nights.append(verdict)


class Watch:
    """A night whose clock the test moves, on an app of one or more instances."""

    def __init__(self, container: ContainerClient, job: str | None, now: datetime = AT_TWO, due: str = "06:00") -> None:
        signature = generate_container_sas(
            container.account_name,
            container.container_name,
            account_key=container.credential.account_key,
            permission=ContainerSasPermissions.from_string("rwdlc"),
            expiry=datetime.now(UTC) + timedelta(hours=1),
        )
        given = {"BUSWAY_RECONCILIATION": f"{container.url}?{signature}", "BUSWAY_NIGHTLY_DUE": due}
        settings = nightly_settings({**given, **({} if job is None else {"BUSWAY_NIGHTLY_JOB": job})})
        assert settings is not None
        self.settings = settings
        self.container = container
        self.clock = ManualClock(now)
        self.telemetry = Counters()

    def instance(self) -> Night:
        job = None if self.settings.job is None else ContainerJob(self.settings.job)
        return Night(self.settings, job, self.telemetry, clock=self.clock, sleep=sleep_by(self.clock))

    def look(self) -> str | None:
        """Look once; return the text of the alert, None without one."""
        try:
            asyncio.run(self.instance().look())
        except AttentionNeeded as error:
            return str(error)
        return None

    def after(self, **of_time: float) -> str | None:
        self.clock.advance(timedelta(**of_time).total_seconds())
        return self.look()

    def write(self, exit_code: int = 0, *, run: str = RUN, verdict: str = "clean", **verdicts: int) -> None:
        task = {"task": "orders", "verdicts": {"delivered": 5, **verdicts}, "findings": verdicts}
        summary = {
            "exit_code": exit_code,
            "verdict": verdict,
            "sentence": "5 messages.",
            "tasks": [task],
            "problems": [],
        }
        self.write_raw(json.dumps(summary), run=run)

    def write_raw(self, text: str, *, run: str = RUN) -> None:
        self.container.upload_blob(f"runs/{run}/summary.json", text, overwrite=True)

    def note(self, day: date = DAY) -> Any:
        return json.loads(self.container.download_blob(f"nightly/{day}.json").readall())


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "busway.nightly" and each.levelno == level]


def test_the_job_is_started_once_for_the_day_that_is_over(management: Management, container: ContainerClient) -> None:
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


def test_a_day_is_begun_when_its_last_messages_have_had_time(
    management: Management, container: ContainerClient
) -> None:
    watch = Watch(container, management.job, datetime(2026, 11, 21, 0, 5, tzinfo=UTC))
    watch.look()  # a timer that is past due
    watch.after(hours=2)
    assert [each["containers"][0]["args"][-1] for each in management.started] == ["2026-11-19", "2026-11-20"]


def test_a_clean_night_is_logged_once_without_an_alert(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write()
    management.end("Succeeded")
    assert [watch.after(minutes=15), watch.after(minutes=15)] == [None, None]
    assert watch.telemetry.nights == ["clean"]
    assert len([line for line in lines(caplog, logging.INFO) if "clean. 5 messages." in line]) == 1
    assert lines(caplog, logging.ERROR) == []


def test_findings_are_reported_once_with_figures_and_page(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write(1, verdict="findings", missing=3, late=1)
    text = watch.after(minutes=15) or ""
    assert text.startswith("nightly reconciliation of 2026-11-20: findings. 5 messages. Page: http://")
    assert text.endswith(f"/runs/{RUN}/report.html")
    assert watch.after(minutes=15) is None
    assert watch.telemetry.findings == {("orders", "missing"): 3, ("orders", "late"): 1}
    (line,) = lines(caplog, logging.ERROR)
    assert json.loads(line[line.index("{") :]) == {
        "busway.night": "2026-11-20",
        "busway.verdict": "findings",
        "busway.findings": {"orders": {"missing": 3, "late": 1}},
        "busway.problems": {},
    }


def test_an_undecided_night_is_reported_as_such(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write(2, verdict="could not decide", undecided=2)
    assert "could not decide" in (watch.after(minutes=15) or "")
    assert (watch.telemetry.nights, watch.telemetry.findings) == (["could not decide"], {("orders", "undecided"): 2})


def test_a_repeated_run_is_reported_again(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write(1, verdict="findings", missing=3)
    assert "findings" in (watch.after(minutes=15) or "")
    watch.write(0)
    assert [watch.after(minutes=15), watch.after(minutes=15)] == [None, None]
    assert watch.telemetry.nights == ["findings", "clean"]


def test_a_manual_run_is_reported_and_not_repeated(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    watch.write(1, verdict="findings", missing=1)
    assert "findings" in (watch.look() or "")
    assert watch.look() is None
    assert management.started == []


def test_a_job_that_is_under_way_for_the_day_is_not_started_again(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    for day in ("2026-11-20", "2026-11-19", "2026-11-18"):  # two pages of them
        management.run({"containers": [{"args": ["--date", day]}]})
    watch = Watch(container, management.job)
    watch.look()
    assert management.started == []
    assert "already started by someone else" in caplog.text


def test_a_failed_job_is_reported_once_and_its_rerun_counts(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    watch.look()
    management.end("Failed")
    text = watch.after(minutes=15) or ""
    assert "no result: execution reconcile-1 has status Failed and wrote no result" in text
    assert watch.after(minutes=15) is None
    management.run(management.started[0])  # by hand
    assert watch.after(minutes=15) is None
    watch.write()
    assert watch.after(minutes=15) is None
    assert watch.telemetry.nights == ["no result", "clean"]


def test_a_job_that_ends_without_a_result_is_reported(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    watch.look()
    management.end("Succeeded")
    assert "has status Succeeded and wrote no result" in (watch.after(minutes=15) or "")


def test_a_job_that_does_not_end_is_reported_in_the_morning_and_its_result_later(
    management: Management, container: ContainerClient
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    assert [watch.after(hours=3, minutes=59), watch.after(minutes=31)] == [
        None,
        "nightly reconciliation of 2026-11-20: no result: none by 06:00 UTC, execution reconcile-1 is running",
    ]
    assert watch.after(minutes=15) is None
    watch.after(hours=20)  # 02:45 of the next day, which has a job of its own
    watch.write(1, verdict="findings", missing=1)
    assert "nightly reconciliation of 2026-11-20: findings" in (watch.after(minutes=15) or "")
    assert len(management.started) == 2


def test_a_job_that_was_started_late_has_its_time(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job, AT_TWO + timedelta(hours=12))
    assert [watch.look(), watch.after(hours=4)] == [None, None]
    assert "no result" in (watch.after(hours=1) or "")


@pytest.mark.parametrize("text", ["", '{"exit_code": 1, "tas', "[]", '{"exit_code": 7}', '{"exit_code": true}'])
def test_a_summary_that_is_not_whole_is_not_taken_for_a_result(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write_raw(text)
    assert watch.after(minutes=15) is None
    assert "summary" in lines(caplog, logging.WARNING)[0]
    management.end("Succeeded")
    assert "wrote no result that can be read" in (watch.after(minutes=15) or "")
    watch.write()
    watch.after(minutes=15)
    assert watch.telemetry.nights == ["no result", "clean"]


@pytest.mark.parametrize(
    "trouble",
    [Trouble(409, "JobBusy"), Trouble(429, headers={"Retry-After": "7"}), Trouble(500), Trouble(503)],
    ids=lambda trouble: trouble.status,
)
def test_a_start_that_fails_is_tried_again(
    management: Management, container: ContainerClient, trouble: Trouble
) -> None:
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


def test_a_start_that_keeps_failing_is_an_error_and_made_up_for_later(
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


def test_an_identity_that_has_no_token_is_named(
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


def test_two_instances_start_one_job_and_tell_one_result(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)

    async def at_once() -> list[BaseException | None]:
        return await asyncio.gather(*(watch.instance().look() for _ in range(4)), return_exceptions=True)

    assert asyncio.run(at_once()) == [None] * 4
    assert len(management.started) == 1
    watch.write(1, verdict="findings", missing=1)
    results = asyncio.run(at_once())
    assert [type(each) for each in results if each is not None] == [AttentionNeeded]
    assert watch.telemetry.nights == ["findings"]


@pytest.mark.parametrize("had_started", [True, False])
def test_an_instance_that_died_between_claim_and_start_is_made_up_for(
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


def test_the_result_of_a_job_whose_starter_died_is_reported(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    claimed = {"date": str(DAY), "claimed": AT_TWO.isoformat(), "started": False, "told": []}
    container.upload_blob(f"nightly/{DAY}.json", json.dumps(claimed))
    watch.write(1, verdict="findings", missing=1)
    assert "findings" in (watch.after(minutes=15) or "")
    assert watch.after(minutes=15) is None
    assert management.started == []


def test_a_job_that_is_started_by_something_else_is_watched(container: ContainerClient) -> None:
    watch = Watch(container, None)
    assert watch.look() is None
    assert watch.after(hours=4) == "nightly reconciliation of 2026-11-20: no result: none by 06:00 UTC"
    assert watch.after(minutes=15) is None
    watch.write(1, verdict="findings", missing=1)
    assert "findings" in (watch.after(minutes=15) or "")


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
def test_settings_that_cannot_be_used_are_named(given: dict[str, str], path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        nightly_settings(given)
    assert [problem.path for problem in raised.value.problems] == [path]


def test_without_settings_there_is_no_nightly() -> None:
    assert nightly_settings({"BUSWAY_NIGHTLY_JOB": "", "BUSWAY_RECONCILIATION": ""}) is None
