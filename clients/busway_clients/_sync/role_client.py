# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""What the clients have in common that use one of several namespaces: its roles, and a store that processes share."""

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


class RoleClient(Closing):
    """
    A client of named namespaces or endpoints, of which an application sees and sets the active one.

    Its roles are those of a store; while that is unavailable, the last known ones are used.
    """

    def __init__(
        self,
        names: Sequence[str],
        store: RoleStore | None,
        refresh: timedelta,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the first name as the active one, unless the store has roles; read the store every *refresh*."""
        self._names = tuple(names)
        self._store = store or MemoryRoles()
        self._refresh_seconds = refresh.total_seconds()
        self._monotonic = monotonic
        self._roles = Roles(self._names, 0)
        self._read_at: float | None = None
        self._error: ClientsError | None = None
        # Keeps two calls from changing the roles at once.
        self._turn = Lock()

    @property
    def state(self) -> RoleState:
        """Return the last known roles, and whether the store confirms them."""
        return RoleState(self._roles.active, self._roles.backups, self._error is None, self._error)

    def activate(self, name: str) -> None:
        """Make *name* active, for example after an outage; raises WrongUse for an unknown name."""
        if name not in self._names:
            raise WrongUse(f"name to activate: got {name!r}, expected one of {', '.join(self._names)}")
        with self._turn:
            self._read()
            self._swap(name)

    def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        with self._turn:
            self._read()
            return self.state

    def _refresh(self) -> None:
        """Read the roles again if the last ones are too old."""
        if self._store.is_local:
            is_fresh = self._store.read() == self._roles
        else:
            is_fresh = self._read_at is not None and self._monotonic() - self._read_at < self._refresh_seconds
        if not is_fresh:
            self._read()

    def _read(self) -> None:
        """Read the roles from the store; while it is unavailable, keep the last known ones."""
        try:
            stored = self._call(self._store.read)
            if stored is None:
                stored = self._call(self._store.replace, 0, self._roles.order)
            self._apply(stored)
        except StoreUnavailable as error:
            self._note_error(error)
        self._read_at = self._monotonic()

    def _swap(self, name: str) -> None:
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
