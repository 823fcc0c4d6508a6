"""
The names and units of all that Busway measures; docs/telemetry.md is this module in prose.

Where the semantic conventions of OpenTelemetry have a name it is theirs (messaging.*, network.*, error.type), and where
the Azure SDKs have one that Azure Monitor looks for it is theirs (az.namespace, enqueuedTime). All else is busway.*.

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
SYSTEM: Final = "messaging.system"
DESTINATION: Final = "messaging.destination.name"
SUBSCRIPTION: Final = "messaging.destination.subscription.name"
CONSUMER_GROUP: Final = "messaging.consumer.group.name"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DIRECTION: Final = "network.io.direction"
ERROR_TYPE: Final = "error.type"

# Attributes of spans alone
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
"""The outcome of a message that its target took in an earlier delivery of its batch, when it was counted as sent."""

TRANSMITTED: Final = frozenset((Outcome.SENT.value, Outcome.REJECTED.value))
"""Outcomes of messages whose bytes a target has accepted."""
FAILED: Final = frozenset((Outcome.REJECTED.value, Outcome.RETRY.value))
"""Outcomes that make the span of a message one of an error."""

# Application properties that carry a trace, in the order in which the Azure SDKs look for them
TRACE_PARENTS: Final = ("traceparent", "Diagnostic-Id")
TRACE_STATE: Final = "tracestate"


class Metric(NamedTuple):
    """One instrument: what it is called, what it counts in, and by which attributes beside those of the source."""

    name: str
    kind: Literal["counter", "up-down counter", "histogram"]
    unit: str
    description: str
    attributes: tuple[str, ...] = ()
    boundaries: tuple[float, ...] = ()


# Every metric has them, as far as the source has them.
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
    "Messages that the host handed over at once.",
    (),
    (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
)
DURATION: Final = Metric(
    "messaging.process.duration",
    "histogram",
    "s",
    "Duration of a batch, from its arrival to its last answer and the journal.",
    (OPERATION, ERROR_TYPE),
    (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300),
)
RETRIES: Final = Metric("busway.retries", "counter", "{attempt}", "Attempts to send after the first of a batch.")
OBSTACLES: Final = Metric(
    "busway.obstacles",
    "up-down counter",
    "{obstacle}",
    "Targets that batches are held for: unavailable or refusing.",
    (TARGET, ERROR_TYPE),
)
BYTES: Final = Metric(
    "busway.io", "counter", "By", "Encoded messages taken from the source and accepted by targets.", (DIRECTION,)
)
UNWRITTEN: Final = Metric(
    "busway.journal.lost",
    "counter",
    "{record}",
    "Records that tasks with a journal of their best effort could not write and went on without.",
)

# Of the nightly reconciliation, which has no source.
FOUND: Final = Metric(
    "busway.findings",
    "counter",
    "{message}",
    "Messages that a nightly reconciliation found at fault or could not decide about.",
    (TASK, VERDICT),
)
NIGHTS: Final = Metric(
    "busway.nights", "counter", "{night}", "Nights by what their reconciliation came to.", (VERDICT,)
)

METRICS: Final = (MESSAGES, LAG, BATCH_SIZE, DURATION, RETRIES, OBSTACLES, BYTES, UNWRITTEN, FOUND, NIGHTS)

BATCH_SPAN: Final = "process {task}"
"""Of a batch: a consumer span with a link to the trace of each message."""
MESSAGE_SPAN: Final = "process {task} message"
"""Of a message that carries a trace: a consumer span within that trace."""


def outcome_of(message: ReportedMessage) -> str:
    """Return the value of OUTCOME for a message of a batch that is over."""
    if message.outcome is None:
        return Outcome.RETRY.value
    if message.outgoing is None and message.outcome in (Outcome.SENT, Outcome.REJECTED):
        return REMEMBERED
    return message.outcome.value
