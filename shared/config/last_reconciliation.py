"""Reads the last result of the nightly reconciliation for the status."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from shared.errors import BuswayError, ConfigError
from shared.status.model import Findings, Reconciliation

_NIGHTS = 3


async def last_reconciliation(
    settings: Mapping[str, str], now: datetime
) -> tuple[Reconciliation | str, Mapping[str, Findings]]:
    """Return the last result of the nightly reconciliation, or why it is unknown, with the findings of each task."""
    from shared.nightly.settings import RESULTS, nightly_settings  # noqa: PLC0415 - only apps with reconciliation

    try:
        configured = nightly_settings(settings)
    except ConfigError as error:
        return str(error), {}
    if configured is None:
        return f"{RESULTS} is not set: the results of the nightly reconciliation are not known", {}
    from shared.nightly.night import WORDS  # noqa: PLC0415 - imports the SDK
    from shared.nightly.results import Results, UnreadableSummary, page_of  # noqa: PLC0415 - likewise

    today = now.astimezone(UTC).date()
    try:
        async with Results(configured.results) as results:
            for back in range(1, _NIGHTS + 1):
                day = today - timedelta(days=back)
                result = await results.result(day)
                if result is not None:
                    findings = {task: Findings(day.isoformat(), dict(found)) for task, found in result.findings.items()}
                    word, page = WORDS[result.exit_code], page_of(results.where, day)
                    return Reconciliation(day.isoformat(), word, result.sentence, page), findings
    except (BuswayError, UnreadableSummary) as error:
        return str(error), {}
    return f"{configured.results.partition('?')[0]} has no result of the last {_NIGHTS} nights", {}
