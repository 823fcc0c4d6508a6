"""The active namespace: the last known roles, and the store that processes share."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from busway_clients.errors import ClientsError, StoreUnavailable, UnusableFile, WrongUse
from busway_clients.senders.roles import MemoryRoles, Roles, RoleStore
from busway_clients.steps import Call, Steps

_LOGGER = logging.getLogger("busway_clients.senders.shared_roles")
REFRESH = timedelta(seconds=5)


class RoleState(NamedTuple):
    """
    The roles as a sender or a client sees them.

    Shape:  is_agreed is false while the store of the roles is unavailable; error has the reason.
    """

    active: str
    backups: tuple[str, ...]
    is_agreed: bool = True
    error: ClientsError | None = None


class SharedRoles:
    """
    The roles of some names, of which one is active; every change is a flow, for callers of both kinds.

    While the store is unavailable, the last known roles are used.
    """

    def __init__(
        self, names: Sequence[str], store: RoleStore | None, age: timedelta, *, monotonic: Callable[[], float]
    ) -> None:
        """Begin with the first name as the active one, unless the store knows better; it is read every *age*."""
        self._names = tuple(names)
        self._store = store or MemoryRoles()
        self._age = age.total_seconds()
        self._monotonic = monotonic
        self._roles = Roles(self._names, 0)
        self._read_at: float | None = None
        self._error: ClientsError | None = None

    @property
    def roles(self) -> Roles:
        """Return the roles as they were last seen."""
        return self._roles

    @property
    def state(self) -> RoleState:
        """Return the last known roles, and whether the store confirms them."""
        return RoleState(self._roles.active, self._roles.backups, self._error is None, self._error)

    @property
    def present(self) -> str | None:
        """Return the active name, None where the roles last seen have aged."""
        if self._store.is_local:
            is_fresh = self._store.read() == self._roles
        else:
            is_fresh = self._read_at is not None and self._monotonic() - self._read_at < self._age
        return self._roles.order[0] if is_fresh else None

    def refresh(self) -> Steps[None]:
        """Read the roles again if the last ones are too old."""
        if self.present is None:
            yield from self.look()

    def look(self) -> Steps[None]:
        """Read the roles again; while the store is unavailable, the last ones are used."""
        try:
            held = yield self._call(self._store.read)
            if held is None:
                held = yield self._call(lambda: self._store.replace(0, self._roles.order))
            self._adopt(held)
        except (StoreUnavailable, UnusableFile) as error:
            self._disagree(error)
        self._read_at = self._monotonic()

    def appoint(self, name: str) -> Steps[None]:
        """Read the roles, and make *name* the active one."""
        if name not in self._names:
            raise WrongUse(f"the name to activate: is {name!r}, expected one of {', '.join(self._names)}")
        yield from self.look()
        yield from self.activate(name)

    def activate(self, name: str) -> Steps[None]:
        """Swap the roles of the active one and *name* here and in the store, whose roles win on a conflict."""
        before = self._roles
        if name == before.active:
            return
        order = [name if each == before.active else before.active if each == name else each for each in before.order]
        _LOGGER.warning("the active name changes from %s to %s", before.active, name)
        self._roles = before._replace(order=tuple(order))
        try:
            self._adopt((yield self._call(lambda: self._store.replace(before.version, order))))
        except (StoreUnavailable, UnusableFile) as error:
            self._disagree(error)

    def _adopt(self, held: Roles) -> None:
        if {*held.order} != {*self._names}:
            raise WrongUse(
                f"the shared roles: are of {', '.join(sorted(held.order))}, expected {', '.join(sorted(self._names))}"
            )
        self._roles, self._error = held, None

    def _disagree(self, error: ClientsError) -> None:
        if self._error is None:
            _LOGGER.warning("the store of the roles is unavailable, the last known roles are used: %s", error)
        self._error = error

    def _call(self, act: Callable[[], Any]) -> Call:
        return Call(act, blocks=not self._store.is_local)
