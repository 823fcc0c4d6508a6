"""
Output through the output binding of a function: the host sends what the function has set, after it has returned.

1. A binding carries only text. In an envelope the text holds whole messages; `body_only` sends the body.
2. "Accepted" means that the host will be asked. If its send fails, it delivers the whole batch again, and all of it is
   sent again, so such a result is never remembered (`shared.line.accepted_sends`).
3. The function collects the texts (`collecting`) and gives them to the host as a list, because the host rewrites every
   other form.

Source: measurements of the Functions host 4.1037 and the proxy worker 4.40.2; docs/decisions/0041.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import blake2b
from typing import Literal

from shared.codecs.envelope import Event, encode_event, envelopes
from shared.errors import BuswayError, MessageRejected, TargetRefused
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.protocols import Outgoing

type Kind = Literal["queue", "topic", "hub"]

DEFAULT_MAX_MESSAGE_BYTES = 240_000
"""A Standard namespace takes 256 KB with the properties that the host adds."""

_collected: ContextVar["dict[BindingOutput, list[str]] | None"] = ContextVar("binding_texts", default=None)


class BindingOutput:
    """A target of a task that the host sends to through an output binding."""

    def __init__(
        self,
        task: str,
        site: str,
        setting: str,
        kind: Kind,
        entity: str,
        *,
        source_kind: str,
        body_only: bool = False,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    ) -> None:
        """
        Send for *task* to *entity* of the namespace in the app setting *setting*.

        A text has at most *max_message_bytes*. *source_kind* is the kind of the source's namespace, unless the messages
        came in envelopes.
        """
        self._task = task
        self.site = site
        self.setting = setting
        self.kind: Kind = kind
        self.entity = entity
        self._source_kind = source_kind
        self._body_only = body_only
        self._limit = max_message_bytes

    @property
    def form(self) -> str:
        """The form in which the target gets a message, as text for an operator."""
        return "the body as text, without properties" if self._body_only else "a whole message in an envelope"

    def text(self, message: Message, part: int | None) -> str:
        """Return the text to send for *message*: its body, or an event that contains it; raises MessageRejected."""
        text = body_text(message) if self._body_only else encode_event(self._event(message, part))
        size = len(text) if text.isascii() else len(text.encode())
        if size > self._limit:
            description = f"{self.site}/{self.entity}: the text has {size} bytes, expected at most {self._limit}"
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
        kind = self._source_kind if event is None else event.kind
        identity = f"{self._task}/{identity}"
        return Event(source, identity if part is None else f"{identity}/{part}", kind, content)

    async def send(
        self,
        entity: str,
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - the host sends
    ) -> list[BuswayError | None]:
        """Store the texts of *messages* for the host, in order; as `shared.protocols.Output.send`."""
        collected = _collected.get()
        if collected is None:
            error = TargetRefused(f"{self.site}/{entity}: sent outside of a function that has its output binding")
            return [error for _ in messages]
        collected.setdefault(self, []).extend(each.content.decode() for each in messages)
        return [None for _ in messages]

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def texts(self, collected: Sequence[str]) -> list[str]:
        """Return the texts of the messages that the host is to send."""
        return list(collected) if self._body_only else envelopes(collected, self._limit)


@contextmanager
def collecting() -> Iterator[dict[BindingOutput, list[str]]]:
    """Collect in the returned mapping the texts that are sent through bindings within this context."""
    collected: dict[BindingOutput, list[str]] = {}
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def body_text(message: Message) -> str:
    """Return the body of *message* if it is UTF-8 text; raises MessageRejected."""
    body = message.body
    if body is None:
        raise MessageRejected("NotText", "body is a value or a sequence, expected UTF-8 text for an output binding")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        description = f"body is not UTF-8 at byte {error.start}, expected text for an output binding"
        raise MessageRejected("NotText", description) from error
