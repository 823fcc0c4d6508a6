"""How a run proceeds."""

from enum import StrEnum
from typing import NamedTuple

PATIENCE_SECONDS = 330.0
"""Longer than the longest lock of Service Bus, five minutes."""
RETRIES = 5


class Unclear(StrEnum):
    """The choices of `--unclear`."""

    LEAVE = "leave"
    SEND = "send"
    COMPLETE = "complete"


class Options(NamedTuple):
    """How a run proceeds."""

    rate: float | None = None
    """Messages per second at most."""
    unclear: Unclear = Unclear.LEAVE
    patience: float = PATIENCE_SECONDS
    """Seconds to wait for messages that another receiver has locked."""
    retries: int = RETRIES
    """How often it tries again in a row if the source or the target is unavailable."""
