# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The last known roles of namespaces, and their store, which processes share."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from busway_clients._sync.closing import Closing
from busway_clients.concurrency.threads import Lock, in_thread
from busway_clients.errors import ClientsError, StoreUnavailable, WrongUse
from busway_clients.senders.roles import MemoryRoles, Roles, RoleState, RoleStore

_LOGGER = logging.getLogger("busway_clients.senders.shared_roles")
REFRESH = timedelta(seconds=5)


class SharedRoles:
    """
    The roles of named namespaces or endpoints, of which one is active.

    While the store is unavailable, the last known roles are used.
    """

    def __init__(
        self,
        names: Sequence[str],
        store: RoleStore | None,
        age: timedelta,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the first name as the active one, unless the store has roles; read the store every *age*."""
        self._names = tuple(names)
        self._store = store or MemoryRoles()
        self._age = age.total_seconds()
        self._monotonic = monotonic
        self._roles = Roles(self._names, 0)
        self._read_at: float | None = None
        self._error: ClientsError | None = None

    @property
    def roles(self) -> Roles:
        """Return the last known roles."""
        return self._roles

    @property
    def state(self) -> RoleState:
        """Return the last known roles, and whether the store confirms them."""
        return RoleState(self._roles.active, self._roles.backups, self._error is None, self._error)

    def refresh(self) -> None:
        """Read the roles again if the last ones are too old."""
        if self._store.is_local:
            is_fresh = self._store.read() == self._roles
        else:
            is_fresh = self._read_at is not None and self._monotonic() - self._read_at < self._age
        if not is_fresh:
            self.look()

    def look(self) -> None:
        """Read the roles from the store; while it is unavailable, keep the last known ones."""
        try:
            stored = self._call(self._store.read)
            if stored is None:
                stored = self._call(self._store.replace, 0, self._roles.order)
            self._apply(stored)
        except StoreUnavailable as error:
            self._note_error(error)
        self._read_at = self._monotonic()

    def make_active(self, name: str) -> None:
        """Read the roles, and make *name* the active one."""
        if name not in self._names:
            raise WrongUse(f"name to activate: got {name!r}, expected one of {', '.join(self._names)}")
        self.look()
        self.activate(name)

    def activate(self, name: str) -> None:
        """Swap the roles of the active name and *name*, here and in the store; on a conflict the store wins."""
        before = self._roles
        if name == before.active:
            return
        order = [name if each == before.active else before.active if each == name else each for each in before.order]
        _LOGGER.warning("roles: %s is active now, instead of %s", name, before.active)
        self._roles = before._replace(order=tuple(order))
        try:
            self._apply(self._call(self._store.replace, before.version, order))
        except StoreUnavailable as error:
            self._note_error(error)

    def _apply(self, stored: Roles) -> None:
        if {*stored.order} != {*self._names}:
            found, expected = (", ".join(sorted(names)) for names in (stored.order, self._names))
            raise WrongUse(f"role store: has roles of {found}, expected {expected}")
        self._roles, self._error = stored, None

    def _note_error(self, error: ClientsError) -> None:
        if self._error is None:
            _LOGGER.warning("roles: the store is unavailable, the last known roles are used: %s", error)
        self._error = error

    def _call(self, act: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 - a method of the store
        return act(*arguments) if self._store.is_local else in_thread(act, *arguments)


class RoleClient(Closing):
    """A client of which an application sees and sets which namespace or endpoint is active."""

    def __init__(self, roles: SharedRoles) -> None:
        """Start with the last known *roles*; the turn keeps two calls from changing them at once."""
        self._roles = roles
        self._turn = Lock()

    @property
    def state(self) -> RoleState:
        """Return the last known roles."""
        return self._roles.state

    def activate(self, name: str) -> None:
        """Make *name* active, for example after an outage; raises WrongUse for an unknown name."""
        with self._turn:
            self._roles.make_active(name)

    def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        with self._turn:
            self._roles.look()
            return self._roles.state
