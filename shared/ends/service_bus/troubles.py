"""
What a target could not process: overload, or messages at fault.

The service answers both with an internal error, and does not say which it is (Azure/azure-sdk-for-net issue 15325, for
Python 19376). A message is at fault if it has the error ten times while the service accepts many others.
"""

from collections import OrderedDict
from typing import NamedTuple

# At overload one message of two was refused: by chance it is ten times in a row once in a thousand.
_MOST_TRIES = 10
# With fewer, the service may be about to accept nothing: then nearly all messages are in trouble.
_ACCEPTED_FOR_EACH = 3
_MOST_KEPT = 1_000


class _Trouble(NamedTuple):
    times: int
    accepted: int
    """What the service had accepted before the first time."""


class Troubles:
    """What one target could not process, by the hash of what was sent: messages alone, or batches."""

    def __init__(self) -> None:
        """Begin without any."""
        self.accepted = 0
        """How often the target has accepted what was sent."""
        self._present: OrderedDict[int, _Trouble] = OrderedDict()

    def note(self, sent: int) -> int:
        """Count that the target could not process this; return how often that was so."""
        before = self._present.pop(sent, _Trouble(0, self.accepted))
        self._present[sent] = before._replace(times=before.times + 1)
        while len(self._present) > _MOST_KEPT:
            self._present.popitem(last=False)
        return before.times + 1

    def forget(self, sent: int) -> None:
        """Count from the beginning: the target has given another answer."""
        self._present.pop(sent, None)

    def is_at_fault(self, sent: int) -> bool:
        """Return whether a message is at fault, rather than the target."""
        trouble = self._present[sent]
        has_evidence = self.accepted - trouble.accepted >= _ACCEPTED_FOR_EACH * len(self._present)
        return trouble.times >= _MOST_TRIES and has_evidence
