"""The errors of Kafka brokers and of librdkafka, and Busway's reaction: a table, shown in docs/kafka.md."""

from datetime import timedelta

from shared.ends.conditions import (
    INVALID,
    MISSING,
    THROTTLED,
    TOO_LARGE,
    UNAUTHORIZED,
    UNREACHABLE,
    Reaction,
)
from shared.errors import TargetRefused

UNTRUSTED = Reaction("untrusted", (), TargetRefused, "no trusted connection is possible")
FORBIDDEN = Reaction("forbidden", (), TargetRefused, "its policy forbids it")

_REACTIONS = {
    INVALID: ("INVALID_RECORD", "INVALID_TIMESTAMP", "INVALID_MSG_SIZE"),
    TOO_LARGE: ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"),
    MISSING: ("_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION", "UNKNOWN_TOPIC_ID"),
    UNAUTHORIZED: (
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    UNTRUSTED: ("_SSL",),
    FORBIDDEN: ("POLICY_VIOLATION", "UNSUPPORTED_VERSION", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "_UNSUPPORTED_FEATURE"),
}
# What Event Hubs asks for in its answers over AMQP (azure-sdk-for-java 11003); over Kafka it names no time.
_THROTTLED_HUB = THROTTLED._replace(retry_after=timedelta(seconds=4))
_BY_NAME = {name: reaction for reaction, names in _REACTIONS.items() for name in names}
# They say that something else failed: another message of the batch, or another batch before this one.
_CONSEQUENCES = frozenset(
    ("_PURGE_QUEUE", "_PURGE_INFLIGHT", "_FATAL", "_GAPLESS_GUARANTEE", "_INVALID_DIFFERENT_RECORD")
)
# Of a connection; others of that kind pass by themselves.
LASTING = frozenset(("_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "_SSL"))


def reaction_to(name: str, *, is_event_hubs: bool = False) -> Reaction:
    """
    Return the row of an error by its name; an unknown one is taken as passing.

    Event Hubs answers POLICY_VIOLATION when it would have to delay a request for longer than its timeout (Microsoft
    Learn, "Apache Kafka troubleshooting guide for Event Hubs").
    """
    if is_event_hubs and name == "POLICY_VIOLATION":
        return _THROTTLED_HUB
    return _BY_NAME.get(name, UNREACHABLE)


def is_consequence(name: str) -> bool:
    """Return whether an error says only that something else failed before."""
    return name in _CONSEQUENCES
