"""A register: the place that records which site is active."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime

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


class Register[Content](ABC):
    """A zone or a document."""

    where: str
    """Its name in messages."""
    reload_command: str | None = None
    """What an operator must do after a change to publish it, None if nothing."""
    version_name = "serial"

    def read(self) -> RegisterState:
        """Return its content; raises FailoverRefused if it is invalid or unavailable."""
        return self._state(self._content())

    def changes(self, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        """Return a line for each change that `write` would make; raises FailoverRefused for an impossible one."""
        return self._changes(self._content(), roles, state)

    def write(self, roles: Mapping[str, str], state: RegisterState) -> RegisterState:
        """Point *roles* to their sites; raises FailoverRefused if the content is no longer *state*."""
        with self._turn():
            content = self._content()
            if self._state(content).version != state.version:
                text = f"someone else has changed it, expected {self.version_name} {state.version}"
                raise FailoverRefused(f"{self.where}: {text}")
            if not self._changes(content, roles, state):
                return state
            self._point(content, roles)
        return self.read()

    def _turn(self) -> AbstractContextManager[None]:
        """Make other writers wait."""
        return nullcontext()

    @abstractmethod
    def _content(self) -> Content:
        """Return its content; raises FailoverRefused."""

    @abstractmethod
    def _state(self, content: Content) -> RegisterState:
        """Return what the content says; raises FailoverRefused."""

    @abstractmethod
    def _changes(self, content: Content, roles: Mapping[str, str], state: RegisterState) -> Sequence[str]:
        """Return the old and new values; raises FailoverRefused for an impossible change."""

    @abstractmethod
    def _point(self, content: Content, roles: Mapping[str, str]) -> None:
        """Write the content with other sites for *roles*; raises FailoverRefused."""


class DnsRegister[Content, N](Register[Content]):
    """A zone, where an alias for each role points to the name of a site."""

    _aliases: Mapping[str, N]
    _names: Mapping[str, N]

    def _changes(self, content: Content, roles: Mapping[str, str], state: RegisterState) -> list[str]:
        wanted = {**state.active, **roles}
        for role, alias in self._aliases.items():
            for other, same in self._aliases.items():
                if alias == same and wanted[role] != wanted[other]:
                    raise FailoverRefused(
                        f"{alias} is the alias for {role} and {other}: they can only be moved together; "
                        "to move one, give each its own alias in failover.yaml"
                    )
        for site in dict.fromkeys(roles.values()):
            self._check(content, site)
        lines: dict[N, str] = {}
        for role, site in roles.items():
            alias, before, after = self._aliases[role], self._names[state.active[role]], self._names[site]
            if before != after:
                lines[alias] = f"{alias} CNAME {before} -> {after}"
        return list(lines.values())

    @abstractmethod
    def _check(self, content: Content, site: str) -> None:
        """Raise FailoverRefused for a name of this zone without SRV records: no application could use it."""

    def _site_of(self, alias: str, target: N) -> str:
        """Return the site with the name that an alias points to; raises FailoverRefused."""
        found = next((site for site, name in self._names.items() if name == target), None)
        if found is None:
            expected = ", ".join(map(str, self._names.values()))
            raise FailoverRefused(f"{self.where}: {alias} points to {target}, expected one of {expected}")
        return found
