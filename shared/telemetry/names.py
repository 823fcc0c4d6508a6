"""
The names and units of all measurements; docs/telemetry.md describes them.

Names come from the semantic conventions of OpenTelemetry (messaging.*, network.*, error.type) or, if Azure Monitor uses
them, from the Azure SDKs (az.namespace, enqueuedTime). All others begin with busway.

Source: OpenTelemetry semantic conventions 1.44, messaging metrics, spans and Azure messaging systems.
"""

from typing import Final, Literal, NamedTuple

from shared.protocols import Outcome, ReportedMessage

SCOPE: Final = "busway"
SERVICE: Final = "busway"

# Attributes of metrics, spans and the log line
TASK: Final = "busway.task"
SOURCE: Final = "busway.source"
TARGET: Final = "busway.target"
OUTCOME: Final = "busway.outcome"
VERDICT: Final = "busway.verdict"
STATE: Final = "busway.state"
REMEDY: Final = "busway.remedy"
ENTITY: Final = "busway.entity"
ROUTE: Final = "busway.route"
SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
SUBSCRIPTION: Final = "messaging.destination.subscription.name"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DIRECTION: Final = "network.io.direction"
ERROR_TYPE: Final = "error.type"

# Attributes of spans only
PARTITION: Final = "messaging.destination.partition.id"
BATCH_COUNT: Final = "messaging.batch.message_count"
MESSAGE_ID: Final = "messaging.message.id"
SEQUENCE_NUMBER: Final = "busway.sequence_number"
AZURE_NAMESPACE: Final = "az.namespace"

# Attribute of a link: milliseconds since 1970 UTC
ENQUEUED_TIME: Final = "enqueuedTime"

# Values
PROCESS: Final = "process"
RECEIVE: Final = "receive"
TRANSMIT: Final = "transmit"
SERVICE_BUS: Final = "servicebus"
EVENT_HUBS: Final = "eventhubs"
AZURE_NAMESPACES: Final = {SERVICE_BUS: "Microsoft.ServiceBus", EVENT_HUBS: "Microsoft.EventHub"}
REMEMBERED: Final = "remembered"
"""The outcome of a message that its target accepted in an earlier delivery of the batch, which counted it as sent."""

TRANSMITTED: Final = frozenset((Outcome.SENT.value, Outcome.REJECTED.value))
"""Outcomes of messages whose bytes a target has accepted."""
FAILED: Final = frozenset((Outcome.REJECTED.value, Outcome.RETRY.value))
"""Outcomes that mark the span of a message as an error."""

# Application properties that carry a trace, in the order in which the Azure SDKs look for them
TRACE_PARENTS: Final = ("traceparent", "Diagnostic-Id")
TRACE_STATE: Final = "tracestate"


class Metric(NamedTuple):
    """An instrument: name, kind, unit, and the attributes that it has in addition to those of the source."""

    name: str
    kind: Literal["counter", "up-down counter", "histogram", "gauge"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    boundaries: tuple[float, ...] = ()


# Attributes of every metric; those that the source does not have are left out.
OF_THE_SOURCE: Final = (TASK, SOURCE, SYSTEM, DESTINATION, SUBSCRIPTION, CONSUMER_GROUP)

MESSAGES: Final = Metric("busway.messages", "counter", "{message}", "Messages by outcome.", (OUTCOME, TARGET))
LAG: Final = Metric(
    "busway.lag",
    "histogram",
    "s",
    "Age of the oldest message of each outcome in a batch, from its enqueued time to the end of the batch.",
    (OUTCOME,),
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14_400, 86_400),
)
BATCH_SIZE: Final = Metric(
    "busway.batch.size",
    "histogram",
    "{message}",
    "Messages in a batch.",
    (),
    (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
DURATION: Final = Metric(
    "messaging.process.duration",
    "histogram",
    "s",
    "Duration of a batch, from its arrival to the last answer of a target or the journal.",
    (OPERATION, ERROR_TYPE),
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300),
)
RETRIES: Final = Metric("busway.retries", "counter", "{attempt}", "Attempts to send after the first of a batch.")
OBSTACLES: Final = Metric(
    "busway.obstacles",
    "up-down counter",
    "{obstacle}",
    "Targets that batches wait for because they are unavailable or refuse messages.",
    (TARGET, ERROR_TYPE, REMEDY),
)
BYTES: Final = Metric(
    "busway.io", "counter", "By", "Encoded messages taken from the source and accepted by targets.", (DIRECTION,)
)
UNWRITTEN: Final = Metric(
    "busway.journal.lost",
    "counter",
    "{record}",
    "Journal records that tasks with `journal: best_effort` could not write.",
)

# What one instance measures in the status of all tasks, once a minute.
TASK_STATE: Final = Metric(
    "busway.task.state", "gauge", "{task}", "1 for the state that the task is in.", (STATE, REMEDY)
)
SOURCE_LAG: Final = Metric(
    "busway.source.lag", "gauge", "s", "Age of the oldest message at the source that is not yet carried."
)
SOURCE_BACKLOG: Final = Metric(
    "busway.source.backlog",
    "gauge",
    "{message}",
    "Messages at the source that are not yet carried, with those in progress.",
)
DEAD_LETTERS: Final = Metric(
    "busway.dead_letters",
    "gauge",
    "{message}",
    "Dead letters of the source and of the targets, by queue and subscription.",
    (ENTITY,),
)
HEARTBEAT_LATENCY: Final = Metric(
    "busway.heartbeat.latency",
    "gauge",
    "s",
    "Time of the last heartbeat of a route from the source to the target.",
    (ROUTE, TARGET),
)
HEARTBEAT_MISSED: Final = Metric(
    "busway.heartbeat.missed",
    "gauge",
    "{route}",
    "1 for a route through which no heartbeat arrives, otherwise 0.",
    (ROUTE, TARGET),
)
GAUGES: Final = (TASK_STATE, SOURCE_LAG, SOURCE_BACKLOG, DEAD_LETTERS, HEARTBEAT_LATENCY, HEARTBEAT_MISSED)

# Metrics of the nightly reconciliation, which has no source.
FOUND: Final = Metric(
    "busway.findings",
    "counter",
    "{message}",
    "Messages with a finding or an undecided verdict in a nightly reconciliation.",
    (TASK, VERDICT),
)
NIGHTS: Final = Metric("busway.nights", "counter", "{night}", "Nightly reconciliations by verdict.", (VERDICT,))

# Metric of the watch for losses and of hourly reconciliations, which have no source either.
LOST: Final = Metric(
    "busway.losses",
    "counter",
    "{message}",
    "Messages that are gone without a record of the task, or that an hourly reconciliation newly found missing.",
    (TASK,),
)

METRICS: Final = (
    MESSAGES,
    LAG,
    BATCH_SIZE,
    DURATION,
    RETRIES,
    OBSTACLES,
    BYTES,
    UNWRITTEN,
    FOUND,
    NIGHTS,
    LOST,
    *GAUGES,
)

BATCH_SPAN: Final = "process {task}"
"""Name of a batch's span: a consumer span with a link to the trace of each message."""
MESSAGE_SPAN: Final = "process {task} message"
"""Name of the span of a message with a trace: a consumer span within that trace."""


def outcome_of(message: ReportedMessage) -> str:
    """Return the value of OUTCOME for a message of a finished batch."""
    if message.outcome is None:
        return Outcome.RETRY.value
    if message.outgoing is None and message.outcome in (Outcome.SENT, Outcome.REJECTED):
        return REMEMBERED
    return message.outcome.value
