"""The split editor: an envelope's messages, each by itself."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from shared.amqp.sections import Sections
from shared.editors.batch import COUNT
from shared.editors.content.body import content_of
from shared.editors.content.envelopes import Format, Taken, envelope
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.ordering import part_id
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import Withheld


class SplitOptions(Strict):
    """What an envelope is."""

    format: Format = Field("json-array", alias="from")
    """`json-array` or `json-lines` of bodies, or an `avro` container with a body in each record."""
    max_count: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Messages in an envelope at most; one that holds more is rejected."""
    content_type: Annotated[str, Field(pattern=r"^[!-~]+/[ -~]+$")] | None = None
    """Content type of what a JSON envelope held, application/json unless given, and of Avro records that say none."""


class SplitStep(Step):
    """
    Makes a message of each that an envelope holds, in their order.

    Each has the envelope's properties and an id made of the envelope's and its place, so that a redelivered envelope
    gives the same ids. What the batch editor has put into an Avro container comes out with its own id and properties.
    An envelope is completed once all of its messages are sent; one that holds nothing is withheld.
    """

    options: SplitOptions = Field(alias="split")

    def editor(self, _: TaskFacts, /) -> "Split":
        """Return the editor that does what the options say."""
        return Split(self.options)


class Split:
    """Takes the messages out of one envelope."""

    name = "split"

    def __init__(self, options: SplitOptions) -> None:
        """Read envelopes as *options* say."""
        self._envelope = envelope(options.format)
        self._limit = options.max_count
        self._content_type = options.content_type or (None if options.format == "avro" else "application/json")

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what the envelope holds."""
        try:
            taken = self._envelope.taken(content_of(message), self._limit)
            if not taken:
                return Withheld(f"{self.name}: the envelope is empty")
            whole = _whole(message)
            return [self._part(whole, each, number) for number, each in enumerate(taken)]
        except MessageRejected as error:
            raise MessageRejected(error.reason, f"{self.name}: {error.description}") from error

    def _part(self, whole: Message, taken: Taken, number: int) -> Message:
        if taken.properties is not None:
            return _restored(whole, taken.properties, taken.body, number)
        part = whole.copy()
        part.message_id = part_id(whole, number)
        if self._content_type is not None:
            part.content_type = self._content_type
        part.body = taken.body
        return part


def _whole(message: Message) -> Message:
    """Return a copy of the envelope without what is of the envelope alone."""
    whole = message.copy()
    if whole.application_property(COUNT) is not None:
        whole.set_properties({COUNT: None})
    whole.sections.footer = b""
    return whole


def _restored(whole: Message, properties: Sections, body: bytes, number: int) -> Message:
    """Return a message as it was put in, with the way that its envelope has come since."""
    raw = whole.copy().sections
    raw.properties, raw.application_properties = properties.properties, properties.application_properties
    part = Message(raw, whole.arrival)
    if part.session_id != whole.session_id:
        raise MessageRejected(
            "WrongSession",
            f"record {number} of the envelope has another session than the envelope, expected the same",
        )
    stamps = {name: value for name, value in whole.application_properties() if name.startswith("repl-")}
    part.set_properties(stamps)
    if not part.has_message_id:
        part.message_id = part_id(whole, number)
    part.body = body
    return part
