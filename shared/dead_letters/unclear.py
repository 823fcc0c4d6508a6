"""What to do with messages of which it is unclear whether they were sent."""

from enum import StrEnum


class Unclear(StrEnum):
    """The choices of `--unclear`."""

    LEAVE = "leave"
    SEND = "send"
    COMPLETE = "complete"
