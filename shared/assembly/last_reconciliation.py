"""Reads the last results of the reconciliation for the status: of the last night, and of an hour since then."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from shared.errors import BuswayError, ConfigError
from shared.status.model import Findings, Reconciliation

_NIGHTS = 3
_HOURS = 3


class LastReconciliation(NamedTuple):
    """The result of the last night, or why it is unknown, with the findings of each task; that of the last hour."""

    night: Reconciliation | str
    findings: Mapping[str, Findings]
    hour: Reconciliation | None = None


async def last_reconciliation(settings: Mapping[str, str], now: datetime) -> LastReconciliation:
    """Return the last results of the reconciliation; the hour is None without one of the last three hours."""
    from shared.nightly.settings import RESULTS, nightly_settings  # noqa: PLC0415 - only apps with reconciliation

    try:
        configured = nightly_settings(settings)
    except ConfigError as error:
        return LastReconciliation(str(error), {})
    if configured is None:
        return LastReconciliation(f"{RESULTS} is not set: the results of the nightly reconciliation are not known", {})
    from shared.nightly.night import WORDS  # noqa: PLC0415 - imports the SDK
    from shared.nightly.results import (  # noqa: PLC0415 - likewise
        Results,
        UnreadableSummary,
        last_closed_hour,
        page_of,
        run_of,
        run_of_hour,
    )

    today = now.astimezone(UTC).date()
    days = {(today - timedelta(days=back)).isoformat(): run_of(today - timedelta(days=back)) for back in _of(_NIGHTS)}
    starts = [last_closed_hour(now) - timedelta(hours=back - 1) for back in _of(_HOURS)]
    hours = {f"{start:%Y-%m-%dT%H}": run_of_hour(start) for start in starts}
    shown: list[Reconciliation | None] = []
    findings: dict[str, Findings] = {}
    try:
        async with Results(configured.results) as results:
            for runs in (days, hours):
                found = None
                for name, run in runs.items():
                    result = await results.of_run(run)
                    if result is not None:
                        word, page = WORDS[result.exit_code], page_of(results.where, run)
                        found = Reconciliation(name, word, result.sentence, page)
                        if runs is days:
                            findings = {task: Findings(name, dict(kinds)) for task, kinds in result.findings.items()}
                        break
                shown.append(found)
    except (BuswayError, UnreadableSummary) as error:
        return LastReconciliation(shown[0] if shown and shown[0] is not None else str(error), findings)
    missing = f"{configured.results.partition('?')[0]} has no result of the last {_NIGHTS} nights"
    return LastReconciliation(shown[0] or missing, findings, shown[1])


def _of(count: int) -> range:
    return range(1, count + 1)
