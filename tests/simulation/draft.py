"""What an application sends: a draft, and its encoded message."""

import json
from functools import lru_cache
from typing import NamedTuple

from shared.amqp.sections import data
from shared.amqp.values import Value, decimal128, int_, string, symbol, timestamp, ulong
from tests.messages import annotations, application_properties, header, properties
from tests.simulation.topology import Input

_BRIEF, _LONG = 1_000, 2_592_000_000
"""The time to live of a message in milliseconds: of a brief one, and of the others."""


class Draft(NamedTuple):
    """A message of an application."""

    key: str
    name: str
    input: Input
    kind: str
    """plain, express, brief (expires), unwanted (filtered), poison (the task rejects it) or heavy (the target does)."""
    parts: int = 1
    size: int = 0
    """The bytes of its body, if it is padded."""
    is_again: bool = False
    """Whether the application has sent it before."""

    @property
    def names(self) -> list[str]:
        """Return the names of its parts, or its own."""
        return [self.name] if self.parts == 1 else [f"{self.name}/{part}" for part in range(self.parts)]


@lru_cache(maxsize=256)
def encoded(draft: Draft, *, is_hub: bool, due: int | None = None) -> bytes:
    """Return the encoded message of a draft, which becomes visible when it is *due*, in milliseconds since 1970."""
    named: dict[str, Value] = {"number": int_(1), "price": decimal128(bytes(range(16)))}
    if draft.kind == "express":
        named["express"] = int_(1)
    if draft.kind == "heavy":
        named["heavy"] = int_(1)
    if draft.kind == "unwanted":
        named["kind"] = string("unwanted")
    media = "text/plain" if draft.kind == "poison" else "application/json"
    fields: dict[str, Value] = {
        "message_id": string(draft.name),
        "subject": string("order"),
        "correlation_id": ulong(7),
        "content_type": symbol(media),
        "creation_time": timestamp(1),
    }
    if not is_hub:
        fields["session_id"] = string(draft.key)
    body = json.dumps(draft.names if draft.parts > 1 else draft.name).encode().ljust(draft.size)
    life = b"" if is_hub else header(time_to_live=_BRIEF if draft.kind == "brief" else _LONG)
    times = b"" if due is None else annotations({"x-opt-scheduled-enqueue-time": timestamp(due)})
    return life + times + properties(**fields) + application_properties(named) + data(body)
