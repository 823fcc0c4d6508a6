"""The alerts of infra/: their queries over rows that the exporter sends; test_main.py tests that they are deployed."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.monitor.opentelemetry.exporter import AzureMonitorMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider

from functions import timers
from functions.composition import NIGHTLY
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Measurement
from shared.telemetry import names
from shared.telemetry.instruments import Instruments
from tests import kusto
from tests.collectors import Collector

ROOT = Path(__file__).parents[3]
ALERTS: Mapping[str, Mapping[str, Any]] = {
    each["name"]: each for each in yaml.safe_load((ROOT / "infra/modules/alerts.yaml").read_text())
}
OF_METRICS = [name for name, alert in ALERTS.items() if alert["needs"] == "metrics"]
WORKBOOK = json.loads((ROOT / "infra/modules/workbook.json").read_text())
SOURCE = {
    names.TASK: "orders",
    names.SOURCE: "west/orders",
    names.SYSTEM: names.SERVICE_BUS,
    names.DESTINATION: "orders",
}
KEY = "00000000-0000-4000-8000-000000000000"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class App:
    """An app whose metrics go to a workspace, one export a minute from noon on."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        collector.received.clear()
        text = f"InstrumentationKey={KEY};IngestionEndpoint={collector.url}/"
        exporter = AzureMonitorMetricExporter(connection_string=text, disable_offline_storage=True)
        self._provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=86_400_000)])
        self.instruments = Instruments(self._provider.get_meter("t"), TracerProvider().get_tracer("t"))
        self.orders = self.instruments.of_task(SOURCE)
        self.rows: list[kusto.Row] = []
        self._minutes = 0
        self.late = timedelta()

    def minute(self, **measured: float | str) -> None:
        """Export what was measured, and the gauges: *state*, *lag*, *dead* and *missed*."""
        metrics = {
            "lag": names.SOURCE_LAG,
            "dead": names.DEAD_LETTERS,
            "state": names.TASK_STATE,
            "missed": names.HEARTBEAT_MISSED,
        }
        more = {
            "dead": {names.ENTITY: "east/orders/Subscriptions/billing"},
            "state": {names.STATE: str(measured.get("state")), names.REMEDY: str(measured.pop("remedy", ""))},
            "missed": {names.ROUTE: "0", names.TARGET: "east/orders"},
        }
        looked = [
            Measurement(metrics[name].name, 1 if name == "state" else float(value), {**SOURCE, **more.get(name, {})})
            for name, value in measured.items()
        ]
        self.instruments.measured(looked)
        self._provider.force_flush()
        for envelope in self._collector.envelopes():
            data = envelope["data"]["baseData"]
            (point,) = data["metrics"]
            self.rows.append(
                {
                    "TimeGenerated": NOON + timedelta(minutes=self._minutes),
                    "Name": point["name"],
                    "Sum": float(point["value"]),
                    "ItemCount": point["count"],
                    "Properties": data["properties"],
                }
            )
        self._collector.received.clear()
        self._minutes += 1

    def fired(self) -> dict[str, list[dict[str, Any]]]:
        """Return the alerts about metrics that fire at the end, with what they fire for."""
        return {name: found for name in OF_METRICS if (found := self.fires(ALERTS[name]))}

    def fires(self, alert: Mapping[str, Any]) -> list[dict[str, Any]]:
        end = NOON + timedelta(minutes=self._minutes)
        start = end - _duration(alert["window"])
        visible = [row for row in self.rows if start <= row["TimeGenerated"] <= end - self.late]
        rows = kusto.run(alert["query"], {"AppMetrics": visible})
        if alert.get("missing"):
            return [] if rows else [{}]
        return [{name: row[name] for name in alert["dimensions"]} for row in rows if row["Value"] > alert["threshold"]]


def _duration(text: str) -> timedelta:
    found = re.fullmatch(r"PT(?:(\d+)H)?(?:(\d+)M)?", text)
    assert found
    return timedelta(hours=int(found[1] or 0), minutes=int(found[2] or 0))


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with pytest.MonkeyPatch.context() as patch:
        # The exporter's telemetry of itself, which goes to Microsoft.
        patch.setenv("APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL", "true")
        patch.setenv("APPLICATIONINSIGHTS_CONTROLPLANE_DISABLED", "true")
        patch.setenv("APPLICATIONINSIGHTS_SDKSTATS_DISABLED", "true")
        with Collector() as running:
            yield running


@pytest.fixture
def app(collector: Collector) -> Iterator[App]:
    with _app(collector) as running:
        yield running


@contextmanager
def _app(collector: Collector) -> Iterator[App]:
    running = App(collector)
    yield running
    running._provider.shutdown()


ORDERS = [{"Task": "orders"}]


def test_no_alert_fires_for_an_app_that_works(app: App) -> None:
    for minute in range(40):
        app.minute(state="running" if minute % 2 else "idle", lag=minute % 3, dead=4)
    assert app.fired() == {}


def test_an_app_that_ends_is_reported_and_nothing_else(app: App) -> None:
    for _ in range(10):
        app.minute(state="running", lag=1000)
    app._minutes += 16
    assert list(app.fired()) == ["no-status"]


def test_a_lag_fires_once_each_look_of_ten_minutes_is_above_the_threshold(app: App) -> None:
    for minute in range(9):
        app.minute(state="running", lag=299 if minute == 0 else 400)
    assert app.fired() == {}
    app.minute(state="running", lag=301)
    assert app.fired() == {}
    app.minute(state="running", lag=301)
    assert app.fired() == {"lag": ORDERS}


def test_the_lag_of_a_paused_task_is_quiet_until_ten_minutes_after_the_resume(app: App) -> None:
    for _ in range(35):
        app.minute(state="paused", lag=4000)
        assert app.fired() == {}
    for _ in range(9):
        app.minute(state="running", lag=4000)
        assert app.fired() == {}
    app.minute(state="running", lag=4000)
    app.minute(state="running", lag=4000)
    assert app.fired() == {"lag": ORDERS}


def test_a_stopped_task_fires_and_one_that_stops_for_a_moment_does_not(app: App) -> None:
    app.minute(state="running")
    for _ in range(9):
        app.minute(state="stopped", remedy="no instance")
    assert app.fired() == {}
    app.minute(state="stopped", remedy="no instance")
    assert app.fired() == {"stopped": [{"Task": "orders", "Remedy": "no instance"}]}
    app.minute(state="idle", lag=0)
    assert app.fired() == {}


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (TargetRefused("east/orders: the target refuses to take messages, its quota is exceeded"), "full"),
        (TargetUnavailable("east/orders: the target cannot be reached"), "away"),
    ],
)
def test_a_target_that_keeps_batches_waiting_fires_until_it_has_recovered(
    app: App, error: BuswayError, remedy: str
) -> None:
    app.orders.outage("east/orders", error)
    for _ in range(7):
        app.minute(state="held", lag=1)
    assert app.fired() == {}
    app.minute(state="held", lag=1)
    assert app.fired() == {
        "held": [{"Task": "orders", "Target": "east/orders", "Reason": type(error).__name__, "Remedy": remedy}],
    }
    app.orders.outage("east/orders", None)
    for _ in range(8):
        app.minute(state="running", lag=1)
    assert app.fired() == {}


def test_a_lag_that_cannot_be_measured_fires_unless_the_source_cannot_be_opened(app: App) -> None:
    for _ in range(31):
        app.minute(state="unknown")
    assert app.fired() == {"not-measured": ORDERS}
    app.minute(state="stopped")
    assert app.fired() == {}


def test_growing_dead_letters_fire_and_a_purge_does_not(app: App) -> None:
    for dead in (900, 900, 3, 3):
        app.minute(state="idle", lag=0, dead=dead)
    assert app.fired() == {}
    app.minute(state="idle", lag=0, dead=4)
    assert app.fired() == {"dead-letters": [{"Entity": "east/orders/Subscriptions/billing"}]}
    for _ in range(60):
        app.minute(state="idle", lag=0, dead=4)
    assert app.fired() == {}


def test_a_route_that_misses_heartbeats_at_every_look_fires_until_one_arrives(app: App) -> None:
    app.minute(state="idle", lag=0, missed=0)
    for _ in range(9):
        app.minute(state="idle", lag=0, missed=1)
    assert app.fired() == {}
    app.minute(state="idle", lag=0, missed=1)
    assert app.fired() == {"heartbeat-missed": [{"Task": "orders", "Target": "east/orders"}]}
    app.minute(state="idle", lag=0, missed=0)
    assert app.fired() == {}


def test_alerts_fire_although_rows_arrive_five_minutes_late(app: App) -> None:
    """FN49: rows need 3 to 5 minutes at times."""
    app.late = timedelta(minutes=5)
    app.orders.outage("east/orders", TargetRefused("full"))
    for _ in range(14):
        app.minute(state="held", lag=400, missed=1)
    assert sorted(app.fired()) == ["heartbeat-missed", "held", "lag"]
    app.orders.outage("east/orders", None)
    for _ in range(14):
        app.minute(state="stopped")
    assert list(app.fired()) == ["stopped"]
    app._minutes += 15
    assert list(app.fired()) == ["no-status"]


def test_lost_messages_fire(app: App) -> None:
    app.instruments.lost("orders", 3)
    app.minute(state="running", lag=0)
    assert app.fired() == {"losses": ORDERS}


def test_lost_journal_records_and_rejected_messages_fire_for_as_long_as_their_window(app: App) -> None:
    app.orders.unwritten(2)
    app.instruments.messages.add(1, {**SOURCE, names.OUTCOME: "rejected", names.TARGET: "rejects"})
    app.minute(state="running", lag=0)
    assert app.fired() == {"rejects": ORDERS, "journal-lost": ORDERS}
    for _ in range(15):
        app.instruments.messages.add(1, {**SOURCE, names.OUTCOME: "sent", names.TARGET: "east/orders"})
        app.minute(state="running", lag=0)
    assert app.fired() == {}


def test_every_query_names_metrics_attributes_and_functions_that_exist() -> None:
    queries = [alert["query"] for alert in ALERTS.values()] + [text for _, text in _charts()]
    known = {metric.name for metric in names.METRICS}
    attributes = {value for value in vars(names).values() if isinstance(value, str)}
    for query in queries:
        assert set(re.findall(r"Properties\['([^']+)'\]", query)) <= attributes
        table = query.removeprefix("union isfuzzy=true ").split()[0]
        if table == "AppMetrics":
            assert set(re.findall(r"'(busway\.[\w.]+)'", re.sub(r"Properties\['[^']+'\]", "", query))) <= known
        elif table == "AppRequests":
            # The timer that all duties share, and the one of a schedule of its own.
            assert f"Name in ('{timers.NAME}', '{NIGHTLY}')" in query
        else:
            assert table == "ContainerAppConsoleLogs"
    # The alert recognises failures of this duty among those of the others by the beginning of their text.
    assert f"Text has '{NIGHTLY}: '" in ALERTS["night-needs-somebody"]["query"]


def test_every_chart_of_the_workbook_shows_what_the_app_exports(app: App) -> None:
    app.orders.outage("east/orders", TargetRefused("full"))
    app.instruments.messages.add(1, {**SOURCE, names.OUTCOME: "sent"})
    for state in ("running", "held"):
        app.minute(state=state, lag=3, dead=1)
    found = {
        name: kusto.run(text.replace("{TimeRange:grain}", "5m"), {"AppMetrics": app.rows}) for name, text in _charts()
    }
    assert found["states"] == [{"Task": "orders", "TimeGenerated": NOON + timedelta(minutes=1), "State": "held"}]
    assert found["lag"] == [{"Task": "orders", "TimeGenerated": NOON, "Seconds": 3.0}]
    assert found["obstacles"] == [{"Target": "east/orders", "TimeGenerated": NOON, "Instances": 2.0}]
    assert {name for name, rows in found.items() if not rows} == {"backlog", "losses"}


def _charts() -> Sequence[tuple[str, str]]:
    return [(each["name"], each["content"]["query"]) for each in WORKBOOK["items"] if each["type"] == 3]


def test_every_alert_has_a_runbook_entry_that_starts_with_a_command() -> None:
    page = (ROOT / "docs/runbook.md").read_text()
    sections = {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-"): text.strip()
        for title, text in re.findall(r"^##+ (.+)\n((?:(?!^##).*\n?)*)", page, re.MULTILINE)
    }
    for alert in ALERTS.values():
        assert sections[alert["runbook"]].startswith("```sh\n"), alert["runbook"]
