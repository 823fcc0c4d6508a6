"""The partition editor: a partition key for messages without an ordering key."""

from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.amqp.values import string
from shared.codecs.json import read_exact
from shared.editors.content.body import content_of
from shared.editors.options import ExpressionText, MessageStep, Strict
from shared.editors.ordering import PARTITION_KEY, FreeName
from shared.errors import MessageRejected
from shared.message.mapping import EVENT_HUBS_PARTITION_KEY
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties

LONGEST_KEY = 128
"""Longest partition key or session id in Service Bus, in characters."""


class PartitionOptions(Strict):
    """Where the key comes from: value or property."""

    value: ExpressionText | None = None
    """JMESPath expression over the JSON body, such as `customer.id`; the result must be a text or a whole number."""
    from_property: FreeName | None = Field(None, alias="property")
    """Application property that is a text or a whole number, in any case."""
    missing: Literal["reject", "leave"] = "reject"
    """What happens if the value is null or missing: `leave` sends the message without a key."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        if (self.value is None) == (self.from_property is None):
            raise ValueError("expected one of value and property")
        return self


class PartitionStep(MessageStep):
    """Adds a partition key to messages that have neither one nor a session; events with the same key stay in order."""

    keeps_properties: ClassVar[bool] = True

    options: PartitionOptions = Field(alias="partition")

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message, with a key if it had none; raises MessageRejected."""
        if message.session_id or message.partition_key or _has_kept_key(message):
            return (message,)
        key = self._key(message)
        if key is not None:
            message.set_annotations({PARTITION_KEY: string(key)})
        return (message,)

    def _key(self, message: Message) -> str | None:
        found: object
        if self.options.value is not None:
            found = self.options.value.of(read_exact(content_of(message)), message)
        else:
            value = RuleProperties(message).user((self.options.from_property or "").lower())
            found = None if value is None else value.payload
        if found is None and self.options.missing == "leave":
            return None
        if found is None:
            raise MessageRejected("NoPartitionKey", "there is no value for the key, expected text or a whole number")
        if isinstance(found, bool) or not isinstance(found, (str, int)):
            raise MessageRejected("NoPartitionKey", "the value for the key is neither a text nor a whole number")
        key = str(found)
        if not 0 < len(key) <= LONGEST_KEY or not _is_utf8(key):
            problem = f"the value for the key has {len(key)} characters, expected 1 to {LONGEST_KEY} of UTF-8"
            raise MessageRejected("NoPartitionKey", problem)
        return key


def _has_kept_key(message: Message) -> bool:
    """Return whether the message was an event with a key, which it gets back in the next hub."""
    kept = message.application_property(EVENT_HUBS_PARTITION_KEY)
    return kept is not None and kept.payload is not None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a character, which JSON can express
        return False
    return True
