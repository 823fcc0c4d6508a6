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
from dataclasses import dataclass
from typing import Literal

from shared.codecs.envelope import envelopes
from shared.errors import BuswayError, TargetRefused
from shared.line.text_form import TextForm
from shared.protocols import Outgoing

type Kind = Literal["queue", "topic", "hub"]

DEFAULT_MAX_MESSAGE_BYTES = 240_000
"""A Standard namespace takes 256 KB with the properties that the host adds."""

_collected: ContextVar["dict[BindingOutput, list[str]] | None"] = ContextVar("binding_texts", default=None)


@dataclass(frozen=True, eq=False)
class BindingOutput:
    """A target of a task that the host sends to through an output binding."""

    form: TextForm
    site: str
    setting: str
    """The app setting of its namespace."""
    kind: Kind
    entity: str

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
        collected.setdefault(self, []).extend(message.content.decode() for message in messages)
        return [None for _ in messages]

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def texts(self, collected: Sequence[str]) -> list[str]:
        """Return the texts of the messages that the host is to send."""
        return list(collected) if self.form.body_only else envelopes(collected, self.form.limit)


@contextmanager
def collecting() -> Iterator[dict[BindingOutput, list[str]]]:
    """Collect in the returned mapping the texts that are sent through bindings within this context."""
    collected: dict[BindingOutput, list[str]] = {}
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)
