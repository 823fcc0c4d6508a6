"""
Opens the telemetry that an app setting selects.

Exporters are imported lazily: only apps with metrics need OpenTelemetry.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

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


class Telemetries(Protocol):
    """The telemetry of an app: for each task's batches, and for the nightly reconciliation."""

    def of_task(self, source: Mapping[str, str]) -> Telemetry:
        """Return the telemetry of a task, given the attributes of its source (`names.OF_THE_SOURCE`)."""
        ...

    def of_nights(self) -> NightTelemetry:
        """Return the telemetry of the nightly reconciliation."""
        ...

    def of_status(self) -> StatusTelemetry | None:
        """Return the telemetry of the status, None if nobody would see it: to measure it costs operations."""
        ...

    def of_losses(self) -> LossTelemetry:
        """Return the telemetry of the watch for losses."""
        ...

    def flush(self, timeout_seconds: float) -> None:
        """Export what was measured so far, as far as that is possible within the time."""
        ...


class _Logged:
    """Telemetry as log lines only."""

    def of_task(self, source: Mapping[str, str]) -> Telemetry:
        return BatchLog(source[TASK])

    def of_nights(self) -> NightTelemetry:
        return self

    def of_status(self) -> StatusTelemetry | None:
        return None

    def of_losses(self) -> LossTelemetry:
        return self

    def flush(self, timeout_seconds: float) -> None:
        """Do nothing: a log line leaves at once."""

    def finding(self, task: str, verdict: str, count: int) -> None:
        """Do nothing: the reconciliation logs it."""

    def night(self, verdict: str) -> None:
        """Do nothing: the reconciliation logs it."""

    def lost(self, task: str, count: int) -> None:
        """Do nothing: the watch logs it."""


class _Measured:
    """Telemetry as log lines and measurements."""

    def __init__(self, instruments: "Instruments") -> None:
        self._instruments = instruments

    def of_task(self, source: Mapping[str, str]) -> Telemetry:
        return Both(BatchLog(source[TASK]), self._instruments.of_task(source))

    def of_nights(self) -> NightTelemetry:
        return self._instruments

    def of_status(self) -> StatusTelemetry | None:
        return self._instruments

    def of_losses(self) -> LossTelemetry:
        return self._instruments

    def flush(self, timeout_seconds: float) -> None:
        self._instruments.flush(timeout_seconds)


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
        return _Logged()
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
    return _Measured(providers.instruments(*exporter.exporters(settings), settings))
