"""
What no editor changes: the id, the keys by which messages keep their order, and what Busway itself keeps in properties.

The session is Service Bus' ordering key, the partition key that of Event Hubs.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from shared.amqp.values import Value, string
from shared.editors.options import ActionText
from shared.message import Message
from shared.metadata import deterministic_id
from shared.rules import SYSTEM_PROPERTIES, parse_action
from shared.rules.syntax import Scope

KEPT = ("MessageId", "PartitionKey", "SessionId", "ViaPartitionKey")
PARTITION_KEY = "x-opt-partition-key"
"""Name of the annotation that holds the partition key."""
OWN = "repl-"
"""What the names of Busway's own properties begin with."""

_SYSTEM = "sys."


def _is_free(name: str) -> str:
    if name.lower().startswith(OWN):
        raise ValueError(f"names {name}, expected none of Busway's own, which begin with {OWN}")
    if name.lower().startswith(_SYSTEM):
        raise ValueError(f"names {name}, expected an application property; an `action` changes broker properties")
    return name


def _leaves_order(text: str) -> str:
    for statement in parse_action(text).statements:
        changed = statement.property
        if changed.scope is Scope.USER:
            if changed.name.lower().startswith(OWN):
                raise ValueError(f"changes {changed}, expected none of Busway's own, which begin with {OWN}")
            continue
        known = SYSTEM_PROPERTIES.get(changed.name.lower())
        if known is not None and known.name in KEPT:
            raise ValueError(f"changes {changed}, expected the id and the ordering keys of a message to be left alone")
    return text


def number_parts(messages: Sequence[Message]) -> None:
    """
    Give the messages that one has become ids of their own, the same at every delivery: ID/1, ID/2 and so on.

    A target that detects duplicates would otherwise keep the first of them only.
    """
    for number, part in enumerate(messages, 1):
        identity = part.message_id
        text = deterministic_id(part.arrival) if identity is None else _as_text(identity)
        if text is not None:
            part.message_id = string(f"{text}/{number}")


def _as_text(identity: Value) -> str:
    return identity.payload.hex() if isinstance(identity.payload, bytes) else str(identity.payload)


type FreeName = Annotated[str, Field(min_length=1), AfterValidator(_is_free)]
"""The name of an application property that is the applications'."""

type EditingAction = Annotated[ActionText, AfterValidator(_leaves_order)]
"""An action that leaves the id, the ordering keys and Busway's own properties alone."""
