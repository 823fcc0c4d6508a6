"""The interface of a register: the place that records which site is active."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from shared.errors import BuswayError


class FailoverRefused(BuswayError):
    """A change that was not made; nothing has changed."""


@dataclass(frozen=True)
class RegisterState:
    """
    The content of a register.

    Shape:  active has the site of each role; version is different after every change.
    Units:  ttl_seconds is how long applications may use an answer; changed is when it was last written, None if that is
            unknown.
    """

    active: Mapping[str, str]
    ttl_seconds: int
    version: str
    changed: datetime | None


class Register(Protocol):
    """A zone or a document."""

    @property
    def where(self) -> str:
        """Its name in messages."""
        ...

    @property
    def reload_command(self) -> str | None:
        """What an operator must do after a change to publish it, None if nothing."""
        ...

    def read(self) -> RegisterState:
        """Return its content; raises FailoverRefused if it is invalid."""
        ...

    def changes(self, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        """Return a line for each change that `write` would make; raises FailoverRefused for an impossible one."""
        ...

    def write(self, roles: Mapping[str, str], state: RegisterState) -> RegisterState:
        """Point *roles* to their sites; raises FailoverRefused if the content is no longer *state*."""
        ...


def check_shared_aliases(aliases: Mapping[str, str], active: Mapping[str, str], roles: Mapping[str, str]) -> None:
    """Raise FailoverRefused if only one of two roles with the same alias would move."""
    wanted = {**active, **roles}
    for role, alias in aliases.items():
        for other, same in aliases.items():
            if alias == same and wanted[role] != wanted[other]:
                raise FailoverRefused(
                    f"{alias} is the alias for {role} and {other}: they can only be moved together; "
                    "to move one, give each its own alias in failover.yaml"
                )
