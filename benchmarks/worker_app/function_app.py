"""
Tasks of Busway that copy messages, with one route and a rule, or two routes of which the second takes the message.

The second route changes the message.
"""

from collections.abc import Sequence

import azure.functions as func
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from functions.settlement import HostSettlement
from functions.tasks import register
from shared.ends.batches import encode_batch, envelope_of, split_by_size
from shared.errors import BuswayError
from shared.journal.log import LogJournal
from shared.journal.sink import Stream
from shared.journal.task import TaskJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.ttl import Keep
from shared.protocols import Journal, Outgoing, Telemetry
from shared.rules.rule import parse_action, parse_filter
from shared.tasks.models import TaskFile
from shared.telemetry.batch_log import BatchLog
from shared.telemetry.names import DESTINATION, SERVICE_BUS, SOURCE, SYSTEM, TASK
from shared.telemetry.providers import instruments

LIMIT = 1 << 20

app = func.FunctionApp()


class DroppingExporter(MetricExporter):
    """Drops all metrics."""

    def export(
        self,
        metrics_data: MetricsData,  # noqa: ARG002 - required by the SDK
        timeout_millis: float = 10_000,  # noqa: ARG002 - required by the SDK
        **_: object,
    ) -> MetricExportResult:
        """Succeed."""
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:  # noqa: ARG002 - required by the SDK
        """Nothing waits."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **_: object) -> None:
        """Nothing is open."""


class DroppingSpanExporter(SpanExporter):
    """Drops all spans."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - required by the SDK
        """Succeed."""
        return SpanExportResult.SUCCESS


class EncodingOutput:
    """Does what the Service Bus sender does, except the network."""

    async def send(
        self,
        entity: str,  # noqa: ARG002 - required by the protocol
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - required by the protocol
    ) -> list[BuswayError | None]:
        """Encode the batches and drop them."""
        for chunk in split_by_size(messages, LIMIT):
            encode_batch(envelope_of(chunk[0]), [message.content for message in chunk])
        return [None] * len(messages)

    async def close(self) -> None:
        """Nothing is open."""


class DroppingSink:
    """Does what the blob sink does, except the network."""

    instance = "instance-1795264790000"

    async def append(self, stream: Stream, member: bytes) -> None:
        """Keep nothing."""

    async def close(self) -> None:
        """Nothing is open."""


_SETTLEMENT = HostSettlement()


def _add(name: str, telemetry: Telemetry, *routes: tuple[str, str | None], journal: Journal | None = None) -> None:
    """Register a task that reports to *telemetry*; each route is a `when` and an action or None."""
    target = {"connection": "east", "queue": "target"}
    task = TaskFile.model_validate(
        {
            "task": name,
            "source": {"connection": "west", "queue": "source"},
            "routes": [{"when": when, "action": action, "target": target} for when, action in routes],
        }
    )
    line = Task(
        name=name,
        origin=Origin("west", "source"),
        editors=(),
        router=Router(
            [
                Route(
                    Target(EncodingOutput(), "east", "target"),
                    parse_filter(when),
                    None if action is None else parse_action(action),
                )
                for when, action in routes
            ]
        ),
        rejects=None,
        time_to_live=Keep(),
        loop_guard=LoopGuard(),
        settlement=_SETTLEMENT,
    )
    register(app, task, Pipeline(line, journal or LogJournal(), telemetry=telemetry), "WEST", sessions=_SETTLEMENT)


_PLAIN = ("amount > 100 OR amount IS NULL", None)
_add("one_rule", BatchLog("one_rule"), _PLAIN)
_add(
    "two_rules",
    BatchLog("two_rules"),
    ("amount > 50000", "SET priority = 9"),
    ("amount > 100", "SET priority = 1; SET sys.To = 'east'"),
)
_add(
    "journalled",
    BatchLog("journalled"),
    _PLAIN,
    journal=TaskJournal("journalled", DroppingSink(), is_hub=False, is_required=True),
)
# With metrics and spans, up to the exporter, which would run in a thread of its own.
_add(
    "measured",
    instruments(DroppingExporter(), DroppingSpanExporter(), {}).of_task(
        {TASK: "measured", SOURCE: "west/source", SYSTEM: SERVICE_BUS, DESTINATION: "source"}
    ),
    _PLAIN,
)
