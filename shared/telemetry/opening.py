"""
Opens the telemetry that an app setting selects.

Exporters are imported lazily: only apps with metrics need OpenTelemetry.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import BuswayError, ConfigError, Problem
from shared.protocols import BatchReport, LossTelemetry, NightTelemetry, StatusTelemetry, Telemetry
from shared.telemetry.batch_log import BatchLog
from shared.telemetry.names import TASK

if TYPE_CHECKING:
    from shared.telemetry.instruments import Instruments

SETTING = "BUSWAY_TELEMETRY"
OFF = "off"
# By the value of the app setting, a module of this package.
EXPORTERS = {"otlp": "otlp", "azure-monitor": "azure_monitor"}

_PACKAGES = {
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "azure": "azure-monitor-opentelemetry-exporter",
}


@dataclass(frozen=True)
class Telemetries:
    """The telemetry of an app: for each task's batches, the reconciliation, the status and the watch for losses."""

    instruments: "Instruments | None" = None
    """None: only log lines are written."""

    def of_task(self, source: Mapping[str, str]) -> Telemetry:
        """Return the telemetry of a task, given the attributes of its source (`names.OF_THE_SOURCE`)."""
        log = BatchLog(source[TASK])
        return log if self.instruments is None else Both(log, self.instruments.of_task(source))

    def of_nights(self) -> NightTelemetry:
        """Return the telemetry of the nightly reconciliation."""
        return self.instruments or _Unmeasured()

    def of_status(self) -> StatusTelemetry | None:
        """Return the telemetry of the status, None if nobody would see it: to measure it costs operations."""
        return self.instruments

    def of_losses(self) -> LossTelemetry:
        """Return the telemetry of the watch for losses."""
        return self.instruments or _Unmeasured()

    def flush(self, timeout_seconds: float) -> None:
        """Export what was measured so far, as far as that is possible within the time."""
        if self.instruments is not None:
            self.instruments.flush(timeout_seconds)


class _Unmeasured:
    """Measures nothing: the reconciliation and the watch for losses log what they find."""

    def finding(self, task: str, verdict: str, count: int) -> None:
        pass

    def night(self, verdict: str) -> None:
        pass

    def lost(self, task: str, count: int) -> None:
        pass


class Both:
    """Reports every batch to two receivers."""

    def __init__(self, first: Telemetry, second: Telemetry) -> None:
        """Pass everything on to *first*, then to *second*."""
        self._first = first
        self._second = second

    @contextmanager
    def in_hand(self, size: int, oldest: int | None) -> Iterator[None]:
        """Pass it on."""
        with self._first.in_hand(size, oldest), self._second.in_hand(size, oldest):
            yield

    def batch(self, report: BatchReport) -> None:
        """Pass it on."""
        self._first.batch(report)
        self._second.batch(report)

    def unwritten(self, records: int) -> None:
        """Pass it on."""
        self._first.unwritten(records)
        self._second.unwritten(records)

    def outage(self, place: str, error: BuswayError | None) -> None:
        """Pass it on."""
        self._first.outage(place, error)
        self._second.outage(place, error)


def open_telemetry(settings: Mapping[str, str]) -> Telemetries:
    """
    Return the telemetry of an app; call it once.

    Log lines are always written; the app setting BUSWAY_TELEMETRY selects metrics and spans. Raises ConfigError.
    """
    choice = settings.get(SETTING) or OFF
    if choice == OFF:
        return Telemetries()
    if choice not in EXPORTERS:
        raise ConfigError([Problem(SETTING, f"is {choice!r}, expected one of {', '.join([OFF, *EXPORTERS])}")])
    try:
        exporter = importlib.import_module(f"shared.telemetry.{EXPORTERS[choice]}")
        providers = importlib.import_module("shared.telemetry.providers")
    except ModuleNotFoundError as error:
        package = _PACKAGES.get((error.name or "").partition(".")[0])
        if package is None:
            raise
        problem = f"is {choice!r}, which needs the package {package}; {error.name} cannot be imported"
        raise ConfigError([Problem(SETTING, problem, f"add {package} to requirements.txt")]) from error
    return Telemetries(providers.instruments(*exporter.exporters(settings), settings))
