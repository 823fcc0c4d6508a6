"""The split editor: separates the messages of an envelope."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.amqp.sections import Sections
from shared.editors.batch import COUNT
from shared.editors.content.body import content_of
from shared.editors.content.envelopes import Format, Taken, envelope
from shared.editors.options import MessageStep, Strict
from shared.editors.ordering import part_id
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import Withheld

# In bytes: the least that is allowed, and for a larger envelope, how many times as large its messages may be.
_LARGEST, _MOST_TIMES = 16 * 2**20, 8


class SplitOptions(Strict):
    """The format of envelopes."""

    format: Format = Field("json-array", alias="from")
    """`json-array` or `json-lines` of bodies, or an `avro` container with one body per record."""
    max_count: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Largest number of messages in an envelope; one with more is rejected."""
    content_type: Annotated[str, Field(pattern=r"^[!-~]+/[ -~]+$")] | None = None
    """Content type of the messages, by default application/json for JSON; for Avro only of records without one."""


class SplitStep(MessageStep):
    """
    Splits an envelope into its messages, in their order.

    Each message has the properties of the envelope and an id from the envelope's id and its place, so that a
    redelivered envelope gives the same ids. Messages from an Avro container of the batch editor have their own ids and
    properties; events in a file of Event Hubs Capture have their application properties, and one without a body has an
    empty one. Of an Avro container with values of another schema, each value is a container, which transcode reads.
    An envelope is completed when all of its messages were sent; an empty one is withheld.
    """

    options: SplitOptions = Field(alias="split")

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return the messages in the envelope."""
        taken = envelope(self.options.format).taken(content_of(message), self.options.max_count)
        if not taken:
            return Withheld("the envelope is empty")
        whole = _whole(message)
        _check_size(whole, taken)
        return [self._part(whole, each, number) for number, each in enumerate(taken)]

    def _part(self, whole: Message, taken: Taken, number: int) -> Message:
        if taken.properties is not None:
            return _restore(whole, taken.properties, taken.body, number)
        part = whole.copy()
        part.message_id = part_id(whole, number)
        content_type = self.options.content_type or (None if self.options.format == "avro" else "application/json")
        if content_type is not None:
            part.content_type = content_type
        if taken.named:
            part.set_properties(taken.named)
        part.body = taken.body
        return part


def _check_size(whole: Message, taken: Sequence[Taken]) -> None:
    """Raise MessageRejected if the messages become too large together; each has the properties of the envelope."""
    raw = whole.sections
    each = len(raw.properties) + len(raw.application_properties) + len(raw.message_annotations)
    size = each * len(taken) + sum(len(part.body) for part in taken)
    most = max(_LARGEST, _MOST_TIMES * len(raw.body))
    if size > most:
        problem = f"the messages of the envelope have {size} bytes together, expected at most {most}"
        raise MessageRejected("EnvelopeTooLarge", problem)


def _whole(message: Message) -> Message:
    """Return a copy of the envelope without what belongs only to the envelope."""
    whole = message.copy()
    if whole.application_property(COUNT) is not None:
        whole.set_properties({COUNT: None})
    whole.sections.footer = b""
    return whole


def _restore(whole: Message, properties: Sections, body: bytes, number: int) -> Message:
    """Return the original message, with the stamps of its envelope."""
    raw = whole.copy().sections
    raw.properties, raw.application_properties = properties.properties, properties.application_properties
    part = Message(raw, whole.arrival)
    if part.session_id != whole.session_id:
        problem = f"record {number} of the envelope has another session than the envelope, expected the same"
        raise MessageRejected("WrongSession", problem)
    stamps = {name: value for name, value in whole.application_properties() if name.startswith("repl-")}
    part.set_properties(stamps)
    if not part.has_message_id:
        part.message_id = part_id(whole, number)
    part.body = body
    return part
