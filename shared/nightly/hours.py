"""
The results of hourly runs: what they found first is reported within minutes, not the next morning.

The night reports everything again, so the metrics of findings are its own: an hour is a line in the log, an invocation
that fails if the hour has new findings, and adds the messages that it newly found missing to the metric of losses.
"""

import logging
from datetime import datetime, timedelta

from shared.clock import Clock, SystemClock
from shared.nightly.night import WORDS, report
from shared.nightly.results import (
    Result,
    Results,
    UnreadableSummary,
    last_closed_hour,
    page_of,
    run_of_hour,
)
from shared.nightly.settings import NightlySettings
from shared.protocols import LossTelemetry

_LOGGER = logging.getLogger("busway.nightly")

_HOUR = timedelta(hours=1)
_FIRST_LOOK, _LONGEST_LOOK = 3 * _HOUR, 24 * _HOUR
_LOST = ("missing", "expired-unsent")


class Hours:
    """Reports each hourly run once, in order; apps without hourly runs report nothing."""

    def __init__(self, settings: NightlySettings, losses: LossTelemetry, *, clock: Clock | None = None) -> None:
        """Watch the results that *settings* name, and add their losses to *losses*."""
        self._settings = settings
        self._losses = losses
        self._clock = clock or SystemClock()

    async def look(self) -> None:
        """
        Report the hours that have a result by now, up to the first with new findings.

        Raises AttentionNeeded if a person must look at it, TargetUnavailable, TargetRefused.
        """
        last = last_closed_hour(self._clock.now())
        async with Results(self._settings.results) as results:
            reported, version = await results.reported_hour()
            hour = last - _FIRST_LOOK if reported is None else max(reported + _HOUR, last - _LONGEST_LOOK)
            while hour <= last:
                try:
                    result = await results.of_run(run_of_hour(hour))
                except UnreadableSummary as error:
                    _LOGGER.warning("hourly reconciliation of %s: %s", _name(hour), error)
                    return
                if result is not None:
                    version = await results.save_reported_hour(hour, version)
                    if version is None:
                        return  # another instance reports
                    self._report(hour, result, page_of(results.where, run_of_hour(hour)))
                hour += _HOUR

    def _report(self, hour: datetime, result: Result, page: str) -> None:
        new = {task: found for task, found in result.new.items() if found}
        counts = "; ".join(
            f"{task}: {', '.join(f'{n} {kind}' for kind, n in found.items())}" for task, found in new.items()
        )
        verdict = f"new findings. {counts}." if new else f"{WORDS[result.exit_code]}. {result.sentence}"
        text = f"hourly reconciliation of {_name(hour)}: {verdict} Page: {page}"
        fields = {"busway.hour": hour.isoformat(), "busway.findings": new, "busway.problems": dict(result.problems)}
        for task, found in new.items():
            if lost := sum(found.get(kind, 0) for kind in _LOST):
                self._losses.lost(task, lost)
        report(text, fields, needs_attention=bool(new))


def _name(hour: datetime) -> str:
    return f"{hour:%Y-%m-%dT%H}"
