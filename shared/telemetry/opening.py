"""
From a setting to what the tasks' batches are told to.

Nothing of OpenTelemetry is imported before a setting asks for it: an app that does not measure starts no slower.
"""

import importlib
from collections.abc import Callable, Mapping

from shared.errors import BuswayError, ConfigError, Problem
from shared.protocols import BatchReport, Telemetry
from shared.telemetry.batch_log import BatchLog
from shared.telemetry.names import TASK

SETTING = "BUSWAY_TELEMETRY"
OFF = "off"
# Each is a module of this package.
EXPORTERS = {"otlp": "otlp", "azure-monitor": "azure_monitor"}

_PACKAGES = {
    "opentelemetry": "opentelemetry-exporter-otlp-proto-http",
    "azure": "azure-monitor-opentelemetry-exporter",
}

type TelemetryOf = Callable[[Mapping[str, str]], Telemetry]


class _Both:
    """Tells two of every batch."""

    def __init__(self, first: Telemetry, second: Telemetry) -> None:
        self._first = first
        self._second = second

    def batch(self, report: BatchReport) -> None:
        self._first.batch(report)
        self._second.batch(report)

    def obstacle(self, place: str, error: BuswayError | None) -> None:
        self._first.obstacle(place, error)
        self._second.obstacle(place, error)


def open_telemetry(settings: Mapping[str, str]) -> TelemetryOf:
    """
    Return what gives each task its telemetry, by the attributes of its source (`names.OF_THE_SOURCE`).

    A log line in any case; metrics and spans as the app setting BUSWAY_TELEMETRY says. Raises ConfigError.
    """
    choice = settings.get(SETTING) or OFF
    if choice == OFF:
        return lambda source: BatchLog(source[TASK])
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
    instruments = providers.instruments(*exporter.exporters(settings), settings)
    return lambda source: _Both(BatchLog(source[TASK]), instruments.of_task(source))
