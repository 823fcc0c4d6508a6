"""The transactions of Apache Qpid Proton, whose tests are in broker/tests; Proton itself is compiled by pip."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.brokers import ROOT
from tests.conformance.python_tests import LIVE, install, results
from tests.conformance.result import Result, Skipped

REQUIREMENT = "python-qpid-proton==0.40.0"


def transactions(folder: Path, words: str) -> Iterator[Result]:
    """Run the tests of transactions with Proton."""
    packages, report = folder / "proton", folder / "proton.jsonl"
    report.unlink(missing_ok=True)
    install(packages, REQUIREMENT)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "busway_report",
        "broker/tests/test_transactions_of_proton.py",
    ]
    path = os.pathsep.join(map(str, (LIVE, packages)))
    environment = {**os.environ, "PYTHONPATH": path, "BUSWAY_REPORT": str(report)}
    with (folder / "proton.log").open("w", encoding="utf-8") as log:
        subprocess.run([*command, "-k", words], cwd=ROOT, env=environment, stdout=log, stderr=log, check=False)  # noqa: S603 - pytest
    if not report.exists():
        raise Skipped(f"pytest did not run: see {folder / 'proton.log'}")
    yield from results(report)
