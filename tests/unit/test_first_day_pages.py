"""What the pages say about the first day on Azure: each row is something that failed or surprised as it was written."""

import json
import re
from pathlib import Path

import pytest

from shared.status.heartbeats import patience_of

ROOT = Path(__file__).parents[2]
AZURE, OPTIONS, TUNING, RUNBOOK, TROUBLESHOOTING = (
    f"docs/{name}.md" for name in ("azure", "azure-options", "tuning", "runbook", "troubleshooting")
)
CHECKLIST, RECONCILIATION = "docs/contribute/azure-checklist.md", "docs/reconciliation.md"


def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (OPTIONS, "`scaleByBacklog`"),
        (TUNING, "adds one instance at a time"),
        ("docs/capacity.md", "`scaleByBacklog`"),
        ("docs/smoke.md", "three minutes"),
        (AZURE, "Flex Consumption has no log stream"),
        (TROUBLESHOOTING, 'operation_Name == "busway-problem"'),
        (AZURE, "docker build --platform linux/amd64"),
        (AZURE, "az provider register"),
        (OPTIONS, "*Contributor* may not write: deploy as *Owner* or *User Access Administrator*"),
        (OPTIONS, "Each deployment sets `capacity` again"),
        (OPTIONS, "NAT gateway"),
        (OPTIONS, "| the timer | 43,200 runs"),
        (OPTIONS, "| hours | 720 runs"),
        (OPTIONS, "some regions refuse fewer than 40"),
        (RUNBOOK, "### Alert: timer-silent"),
        (TROUBLESHOOTING, "`WarmUp` only"),
        (TROUBLESHOOTING, "This request is not authorized"),
        (TUNING, "`[4.38.0, 4.39.0)`"),
        (OPTIONS, "`pairedRegion`"),
        ("docs/amqp.md", "`keys: true`"),
        (RECONCILIATION, "a Python wheel task"),
        (RECONCILIATION, "A cluster in dedicated access mode"),
        (RECONCILIATION, "None of them has a schedule or an identity"),
        (RECONCILIATION, "`not-captured`"),
        (AZURE, "**data-plane** right"),
    ],
)
def test_the_page_says_so(file: str, text: str) -> None:
    assert text in text_of(file)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        # No such command of the Azure CLI.
        ("functionapp list-instances", [AZURE, OPTIONS, CHECKLIST, RUNBOOK, "docs/first-hour.md"]),
        # Flex Consumption has none.
        ("Log stream", [AZURE, OPTIONS, CHECKLIST, RUNBOOK, TROUBLESHOOTING]),
        ("AzureWebJobs.orders", [RUNBOOK]),
        ("zip -r", [RECONCILIATION]),
        ("the zip as a library", [RECONCILIATION]),
        # Its sends hang; 2.0.1 does not.
        (":latest", ["infra/emulators/compose.yaml"]),
        ("servicebus-emulator:2.0.0", ["infra/emulators/compose.yaml"]),
    ],
)
def test_the_page_says_it_no_more(text: str, files: list[str]) -> None:
    assert [file for file in files if text in text_of(file)] == []


def test_the_costs_add_up() -> None:
    table = text_of(OPTIONS).partition("| what | quantity | USD |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (?P<what>[^|]+) \|.*\| (?P<usd>[\d.]+) \|$", table, re.MULTILINE)
    together = re.search(r"\| \*\*together\*\* \| \| \*\*(\d+)\*\* \|", table)
    assert together is not None
    assert len(rows) >= 11
    assert round(sum(float(usd) for _, usd in rows)) == int(together[1])


def test_as_many_alerts_are_paid_for_as_are_deployed() -> None:
    alerts = len(re.findall(r"^- name:", text_of("infra/modules/alerts.yaml"), re.MULTILINE))
    assert re.search(rf"\| alerts \| {alerts} . 1\.50 \| {alerts * 1.5:.2f} \|", text_of(OPTIONS))


def test_every_provider_that_the_template_uses_is_registered() -> None:
    used = {
        name
        for path in (ROOT / "infra").rglob("*.bicep")
        for name in re.findall(r"^resource \w+ 'Microsoft\.(\w+)/", path.read_text(), re.MULTILINE)
    }
    named = re.search(r"for provider in ([\w ]+);", text_of(AZURE))
    assert named is not None
    # Nobody registers Authorization.
    assert used - {"Authorization"} <= set(named[1].split())


@pytest.mark.parametrize(("every", "seconds"), [(5, 15), (29, 87), (30, 150), (49, 150), (60, 180), (3600, 10_800)])
def test_a_heartbeat_is_not_missed_while_an_app_at_zero_may_still_take_it(every: float, seconds: float) -> None:
    """FN16: the first message after idle time waits for up to two minutes."""
    assert patience_of(every) == seconds


@pytest.mark.parametrize(("every", "seconds"), [(5, 155), (30, 180), (60, 210), (3600, 10_800)])
def test_a_heartbeat_of_a_hub_is_not_missed_while_a_restarted_app_waits_for_partitions(
    every: float, seconds: float
) -> None:
    """FN24: two to two and a half minutes."""
    assert patience_of(every, is_hub=True) == seconds


def test_the_range_of_bundles_is_the_one_that_the_page_explains() -> None:
    """FN22: it moves by itself."""
    version = json.loads(text_of("host.json"))["extensionBundle"]["version"]
    assert f"| `extensionBundle` | `{version}` |" in text_of(TUNING)
    assert "moves by itself" in text_of(TUNING)
