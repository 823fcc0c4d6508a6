"""A plugin for pytest that writes the outcome of each test as soon as it is known."""

import json
import os
from pathlib import Path

import pytest


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write an outcome to BUSWAY_REPORT as a line of JSON; those before the end of a run that is stopped are kept."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    reason = ""
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        reason = crash.message if crash is not None else str(report.longrepr)
    elif report.skipped and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
    line = {"name": report.nodeid, "outcome": report.outcome, "reason": reason.split("\n")[0]}
    with Path(os.environ["BUSWAY_REPORT"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
