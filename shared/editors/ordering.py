"""
The parts that editors must not change: the id, the ordering keys, and Busway's own properties.

The ordering key of Service Bus is the session id, that of Event Hubs is the partition key.
"""

from hashlib import blake2b
from typing import Annotated

from pydantic import AfterValidator, Field

from shared.amqp.values import Value, string
from shared.editors.options import ActionText
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.message.rule_properties import SYSTEM
from shared.rules import SYSTEM_PROPERTIES, parse_action
from shared.rules.syntax import Scope

KEPT = ("MessageId", "PartitionKey", "SessionId", "ViaPartitionKey")
LONGEST_ID = 128
"""Longest message id in Service Bus, in characters."""
PARTITION_KEY = "x-opt-partition-key"
"""Name of the annotation with the partition key."""
OWN = "repl-"
"""Prefix of Busway's own properties."""


def _is_free(name: str) -> str:
    if name.lower().startswith(OWN):
        raise ValueError(f"names {name}, expected none of Busway's own, which begin with {OWN}")
    if name.lower().startswith(SYSTEM):
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


def part_id(whole: Message, number: int) -> Value | None:
    """
    Return the id of one of the messages into which *whole* is split: ID/0, ID/1 and so on, the same at every delivery.

    None if nothing identifies the message.
    """
    given = whole.message_id
    text = deterministic_id(whole.arrival) if given is None else str(given.payload)
    if text is None:
        return None
    identity = f"{text}/{number}"
    if len(identity) > LONGEST_ID:
        identity = f"{blake2b(text.encode(), digest_size=16).hexdigest()}/{number}"
    return string(identity)


type FreeName = Annotated[str, Field(min_length=1), AfterValidator(_is_free)]
"""The name of an application property that is not Busway's own."""

type EditingAction = Annotated[ActionText, AfterValidator(_leaves_order)]
"""An action that does not change the id, the ordering keys and Busway's own properties."""
