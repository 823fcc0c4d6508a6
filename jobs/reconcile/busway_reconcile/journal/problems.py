"""Problems with the evidence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

EMPTY = "empty-file"
"""Kind of the problem of a file without content: a writer that ends before its first record leaves one."""


class Problem(NamedTuple):
    """
    A defect of the evidence: named in the summary, and never counted as clean.

    Shape:   *hours* are those in which records of *task* are unreliable, on side *role* or on both; empty if none are.
    """

    kind: str
    where: str
    text: str
    task: str | None = None
    role: str | None = None
    hours: tuple[str, ...] = ()

    @classmethod
    def from_list(cls, values: Sequence[Any]) -> "Problem":
        """Return the problem that JSON holds as the list *values*."""
        kind, where, text, task, role, hours = values
        return cls(kind, where, text, task, role, tuple(hours))
