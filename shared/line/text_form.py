"""
Messages as text, for channels that carry nothing else: output bindings and storage queues.

An envelope holds a whole message; `body_only` sends the body.
"""

import base64
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from shared.codecs.envelope import Event, encode_event
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.metadata import deterministic_id

# What XML 1.0 lacks, and the carriage return, of which its readers make a line feed.
_NOT_XML = re.compile("[^\\t\\n\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")

type Encoding = Literal["text", "base64"]


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a task puts its messages into texts for one target."""

    task: str
    place: str
    """The target, in errors."""
    source_kind: str
    """The kind of the source's namespace, unless the messages came in envelopes."""
    limit: int
    """The largest text in bytes, as it is sent."""
    body_only: bool = False
    encoding: Encoding = "text"
    is_event: bool = False
    """Whether the channel takes CloudEvents only: the body must be one, in structured mode."""
    is_xml: bool = False
    """Whether the channel writes the text into XML, which does not have all characters."""

    @property
    def description(self) -> str:
        """The form in which the target gets a message, as text for an operator."""
        encoded = " in base64" if self.encoding == "base64" else ""
        if self.body_only:
            return f"the body{encoded or ' as text'}, without properties"
        return f"a whole message in an envelope{encoded}"

    def text(self, message: Message, part: int | None) -> str:
        """Return the text to send for *message*: its body, or an event that contains it; raises MessageRejected."""
        if not self.body_only:
            text = encode_event(self._event(message, part))
            if self.encoding == "base64":
                text = base64.b64encode(text.encode()).decode()
        elif self.encoding == "base64":
            text = base64.b64encode(_data(message)).decode()
        else:
            text = body_text(message)
            if self.is_event:
                _check_event(text.encode())
            if self.is_xml and _NOT_XML.search(text):
                description = (
                    f"{self.place}: body has characters that XML changes or lacks, expected `encoding: base64`"
                )
                raise MessageRejected("NotText", description)
        size = len(text) if text.isascii() else len(text.encode())
        if size > self.limit:
            description = f"{self.place}: the text has {size} bytes, expected at most {self.limit}"
            raise MessageRejected("MessageSizeExceeded", description)
        return text

    def _event(self, message: Message, part: int | None) -> Event:
        """
        Return the event of a message; its id is the same at every delivery, and different for every part.

        Two tasks, such as two consumer groups of a hub, may send copies of one message to one entity, so the id has the
        task.
        """
        content = message.encode()
        identity = deterministic_id(message.arrival) or blake2b(content, digest_size=16).hexdigest()
        source = "/".join(each for each in message.arrival.origin if each is not None)
        event = message.arrival.event
        kind = self.source_kind if event is None else event.kind
        identity = f"{self.task}/{identity}"
        return Event(source, identity if part is None else f"{identity}/{part}", kind, content)


def _check_event(content: bytes) -> None:
    from shared.codecs.cloudevents import read  # noqa: PLC0415 - loaded by tasks that need it

    read(content)


def body_text(message: Message) -> str:
    """Return the body of *message* if it is UTF-8 text; raises MessageRejected."""
    try:
        return _data(message).decode()
    except UnicodeDecodeError as error:
        description = f"body is not UTF-8 at byte {error.start}, expected text for the target"
        raise MessageRejected("NotText", description) from error


def _data(message: Message) -> bytes:
    body = message.body
    if body is None:
        raise MessageRejected("NotText", "body is a value or a sequence, expected bytes for the target")
    return body
