"""Claims in a store that may wait: taken so that a cancelled call leaves none, and kept while the application works."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from busway_clients.errors import ClaimLost, StoreUnavailable
from busway_clients.receivers.stores.store import Claim, LeasedStore, State, Store

_LOGGER = logging.getLogger("busway_clients.receivers")
_BEATS = 4
"""A claim is renewed so often within its lease, so that three answers of a store may be lost or clocks differ."""


class Claiming:
    """One question for a claim, asked in a thread that goes on when the one who waits for the answer does not."""

    def __init__(self, store: Store, identity: str, now: Callable[[], float]) -> None:
        self._store = store
        self._identity = identity
        self._now = now
        self._turn = threading.Lock()
        self._answer: Claim | State | None = None
        self._is_given_up = False

    def ask(self) -> Claim | State:
        """Ask the store; release the claim if the caller no longer waits for it."""
        answer = self._store.claim(self._identity, self._now())
        with self._turn:
            self._answer = answer
            is_given_up = self._is_given_up
        if is_given_up:
            self._release(answer)
        return answer

    def give_up(self) -> None:
        """Stop waiting for the answer."""
        with self._turn:
            self._is_given_up = True
            answer = self._answer
        self._release(answer)

    def _release(self, answer: Claim | State | None) -> None:
        if isinstance(answer, Claim):
            with suppress(StoreUnavailable):
                self._store.release(answer)


class Beats:
    """Renews the claims in hand, from a thread that lives while there are any: event loops and threads may be held."""

    def __init__(self, store: LeasedStore, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now
        self._seconds = store.lease.total_seconds() / _BEATS
        self._claims: set[Claim] = set()
        self._turn = threading.Lock()
        self._is_running = False

    @contextmanager
    def keeping(self, claim: Claim) -> Iterator[None]:
        """Keep a claim for as long as the context lasts."""
        with self._turn:
            self._claims.add(claim)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="renew claims", daemon=True).start()
        try:
            yield
        finally:
            with self._turn:
                self._claims.discard(claim)

    def _run(self) -> None:
        while True:
            time.sleep(self._seconds)
            with self._turn:
                claims = [*self._claims]
                self._is_running = bool(claims)
            if not claims:
                return
            for claim in claims:
                self._renew(claim)

    def _renew(self, claim: Claim) -> None:
        try:
            self._store.renew(claim, self._now())
        except ClaimLost:
            # Released or recorded meanwhile; if it has expired, recording it fails.
            with self._turn:
                self._claims.discard(claim)
        except Exception as error:  # noqa: BLE001 - a store of any kind, and the next beat may succeed
            _LOGGER.warning("the claim on message %s could not be renewed: %s", claim.identity, type(error).__name__)
