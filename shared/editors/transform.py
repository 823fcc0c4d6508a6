"""The transform editor: computes a new JSON body from the old one."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from shared.codecs.json import read_exact, write
from shared.editors.content.body import content_of, put_content
from shared.editors.options import ExpressionText, MediaType, MessageStep, Strict
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import Withheld

LARGEST_RESULT = 100 * 2**20
"""Largest new body in bytes, the limit of the largest entities of Service Bus."""


class TransformOptions(Strict):
    """The new body."""

    expression: ExpressionText
    """JMESPath expression over the JSON body, whose result is the new body; `property('name')` returns a property."""
    content_type: MediaType | None = None
    """Media type of the new body; by default that of the message."""
    on_null: Literal["reject", "drop", "write"] = "reject"
    """What happens if the result is null, as for a missing path: `write` makes null the body, `drop` withholds."""


class TransformStep(MessageStep):
    """Computes a new JSON body with a JMESPath expression; numbers keep every digit."""

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False

    options: TransformOptions = Field(alias="transform")

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """
        Return the message with its new body; a null result may withhold it; raises MessageRejected.

        Selected parts are written as they were read, except for white space, escapes and the spelling of exponents.
        Data sections become one; an amqp-value that is a string or binary stays one.
        """
        options = self.options
        value = options.expression.of(read_exact(content_of(message)), message)
        if value is None and options.on_null == "drop":
            return Withheld("the result is null")
        if value is None and options.on_null == "reject":
            raise MessageRejected("NothingFound", "the result is null, expected a value")
        content = write(value)
        if len(content) > LARGEST_RESULT:
            problem = f"the result has {len(content)} bytes, expected at most {LARGEST_RESULT}"
            raise MessageRejected("ResultTooLarge", problem)
        put_content(message, content)
        if options.content_type is not None:
            message.content_type = options.content_type
        return (message,)
