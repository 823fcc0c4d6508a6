"""The results that the nightly timer reports, against Resource Manager and a storage account over HTTP."""

import json
import logging
from datetime import timedelta

import pytest
from azure.storage.blob import ContainerClient

from tests.management import Management
from tests.wire.nightly.night import AT_TWO, DAY, RUN, Watch, lines


def test_each_result_of_a_day_is_reported_once_with_figures_and_page(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write(1, verdict="findings", missing=3, late=1)
    text = watch.after(minutes=15) or ""
    assert text.startswith("nightly reconciliation of 2026-11-20: findings. 5 messages. Page: http://")
    assert text.endswith(f"/runs/{RUN}/report.html")
    assert watch.after(minutes=15) is None
    (line,) = lines(caplog, logging.ERROR)
    assert json.loads(line[line.index("{") :]) == {
        "busway.night": "2026-11-20",
        "busway.verdict": "findings",
        "busway.findings": {"orders": {"missing": 3, "late": 1}},
        "busway.problems": {},
    }
    # The run is repeated, and once more.
    watch.write(2, verdict="could not decide", undecided=2)
    assert "could not decide" in (watch.after(minutes=15) or "")
    watch.write()
    management.end("Succeeded")
    assert [watch.after(minutes=15), watch.after(minutes=15)] == [None, None]
    assert watch.telemetry.nights == ["findings", "could not decide", "clean"]
    counts = {"missing": 3, "late": 1, "undecided": 2}
    assert watch.telemetry.findings == {("orders", kind): count for kind, count in counts.items()}
    assert len([line for line in lines(caplog, logging.INFO) if "clean. 5 messages." in line]) == 1
    assert len(lines(caplog, logging.ERROR)) == 2


def test_a_manual_run_is_reported_and_not_repeated(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    watch.write(1, verdict="findings", missing=1)
    assert "findings" in (watch.look() or "")
    assert watch.look() is None
    assert management.started == []


@pytest.mark.parametrize("status", ["Failed", "Succeeded"])
def test_a_job_without_a_result_is_started_again_once_and_then_reported(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture, status: str
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    management.end(status)
    assert watch.after(minutes=15) is None
    (warning,) = lines(caplog, logging.WARNING)
    assert f"execution reconcile-1 has status {status} and wrote no result; the job is started again" in warning
    assert (watch.after(minutes=15), len(management.started)) == (None, 2)
    management.end(status)
    text = watch.after(minutes=15) or ""
    assert f"no result: execution reconcile-2 has status {status} and wrote no result" in text
    assert (watch.after(minutes=15), len(management.started)) == (None, 2)
    management.run(management.started[0])  # by hand
    assert watch.after(minutes=15) is None
    watch.write()
    assert watch.after(minutes=15) is None
    assert watch.telemetry.nights == ["no result", "clean"]


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
def test_incomplete_summary_is_not_a_result(
    management: Management, container: ContainerClient, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    watch = Watch(container, management.job)
    watch.look()
    watch.write_raw(text)
    assert watch.after(minutes=15) is None
    assert "summary" in lines(caplog, logging.WARNING)[0]
    management.end("Succeeded")
    assert watch.after(minutes=15) is None
    assert "wrote no result that can be read" in lines(caplog, logging.WARNING)[-1]
    watch.write()
    watch.after(minutes=15)
    assert watch.telemetry.nights == ["clean"]


def test_the_result_of_a_job_whose_starter_died_is_reported(management: Management, container: ContainerClient) -> None:
    watch = Watch(container, management.job)
    claimed = {"date": str(DAY), "claimed": AT_TWO.isoformat(), "started": False, "told": []}
    container.upload_blob(f"nightly/{DAY}.json", json.dumps(claimed))
    watch.write(1, verdict="findings", missing=1)
    assert "findings" in (watch.after(minutes=15) or "")
    assert watch.after(minutes=15) is None
    assert management.started == []


def test_job_that_is_started_elsewhere_is_watched(container: ContainerClient) -> None:
    watch = Watch(container, None)
    assert watch.look() is None
    assert watch.after(hours=4) == "nightly reconciliation of 2026-11-20: no result: none by 06:00 UTC"
    assert watch.after(minutes=15) is None
    watch.write(1, verdict="findings", missing=1)
    assert "findings" in (watch.after(minutes=15) or "")
