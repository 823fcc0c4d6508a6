"""A night whose clock a test moves."""

import asyncio
import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas

from shared.clock import ManualClock
from shared.nightly.container_job import ContainerJob
from shared.nightly.night import AttentionNeeded, Night
from shared.nightly.settings import nightly_settings
from tests.fakes import sleep_by

DAY = date(2026, 11, 20)


RUN = "2026-11-20T00--2026-11-21T00"


AT_TWO = datetime(2026, 11, 21, 2, tzinfo=UTC)


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

    def write(
        self,
        exit_code: int = 0,
        *,
        run: str = RUN,
        verdict: str = "clean",
        new: dict[str, int] | None = None,
        **verdicts: int,
    ) -> None:
        task = {"task": "orders", "verdicts": {"delivered": 5, **verdicts}, "findings": verdicts, "new": new}
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
    return [
        record.getMessage() for record in caplog.records if record.name == "busway.nightly" and record.levelno == level
    ]
