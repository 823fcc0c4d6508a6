"""What every place that says which site is in use can be asked and told."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.errors import BuswayError


class FailoverRefused(BuswayError):
    """What was asked for is not done, and nothing is changed."""


@dataclass(frozen=True)
class Standing:
    """
    What a register says.

    Shape:  active has the site of each role; version changes with every change, whoever makes it.
    Units:  ttl_seconds is how long applications may go on with what they have read; changed is when it was last
            written, None where that is not known.
    """

    active: Mapping[str, str]
    ttl_seconds: int
    version: str
    changed: datetime | None


class Register(Protocol):
    """A zone or a document."""

    @property
    def where(self) -> str:
        """What a person would call it."""
        ...

    @property
    def loading(self) -> str | None:
        """What has to be done after a change before anybody can read it, None where it is nothing."""
        ...

    def read(self) -> Standing:
        """Return what it says; raises FailoverRefused for what cannot be understood."""
        ...

    def changes(self, roles: Mapping[str, str], standing: Standing) -> Sequence[str]:
        """Return a line for each thing that `write` would change; raises FailoverRefused for what cannot be."""
        ...

    def write(self, roles: Mapping[str, str], standing: Standing) -> Standing:
        """Point *roles* to their sites, if it still says what *standing* does; raises FailoverRefused otherwise."""
        ...


def together(aliases: Mapping[str, str], active: Mapping[str, str], roles: Mapping[str, str]) -> None:
    """Refuse to move one of two roles that have the same alias."""
    wanted = {**active, **roles}
    for role, alias in aliases.items():
        for other, same in aliases.items():
            if alias == same and wanted[role] != wanted[other]:
                raise FailoverRefused(
                    f"{alias} is the alias for {role} and {other}: they can only be moved together, "
                    "expected aliases of their own in failover.yaml"
                )
