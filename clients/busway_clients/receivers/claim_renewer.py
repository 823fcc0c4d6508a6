"""Renews claims in a store while the application works."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from busway_clients.errors import ClaimLost
from busway_clients.receivers.stores.store import Claim, LeasedStore

_LOGGER = logging.getLogger("busway_clients.receivers")
_RENEWALS = 4
"""How often a claim is renewed within its lease, so that up to three renewals may fail and clocks may differ."""


class ClaimRenewer:
    """Renews the current claims in a thread, since the application may block its own threads and event loops."""

    def __init__(self, store: LeasedStore) -> None:
        self._store = store
        self._seconds = store.lease.total_seconds() / _RENEWALS
        self._claims: set[Claim] = set()
        self._lock = threading.Lock()
        self._is_running = False

    @contextmanager
    def keeping(self, claim: Claim) -> Iterator[None]:
        """Renew a claim while the context lasts."""
        with self._lock:
            self._claims.add(claim)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="renew claims", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._claims.discard(claim)

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds)
            with self._lock:
                claims = [*self._claims]
                self._is_running = bool(claims)
            if not claims:
                return
            for claim in claims:
                self._renew(claim)

    def _renew(self, claim: Claim) -> None:
        try:
            self._store.renew(claim, time.time())
        except ClaimLost:
            # It was released or recorded in the meantime; if it has expired, recording it fails.
            with self._lock:
                self._claims.discard(claim)
        except Exception as error:  # noqa: BLE001 - any kind of store, and the next renewal may succeed
            _LOGGER.warning("message %s: its claim could not be renewed: %s", claim.identity, type(error).__name__)
