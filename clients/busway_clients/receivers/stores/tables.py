"""A store in a table of Azure Storage or Cosmos DB for Table, for receivers anywhere; needs the extra `tables`."""

import hashlib
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from busway_clients.errors import ClaimLost, WrongUse
from busway_clients.receivers.stores.store import LEASE, WINDOW, Claim, State
from busway_clients.table import Table, TableClient, TableEntity

_PROPERTIES = {"token", "is_done", "until"}


class TablesStore:
    """
    Remembers processed messages for *window*, in an existing table; the entities' ETags are the locks.

    A claim lasts for *lease* unless it is renewed; receivers renew it while the application works. Half of *lease* must
    be longer than the difference between clocks. Call `purge` from time to time, since nothing expires in a table.
    """

    is_local = False

    def __init__(self, table: TableClient, name: str, window: timedelta = WINDOW, *, lease: timedelta = LEASE) -> None:
        """Receivers with the same *name*, such as that of their queue, share what is remembered."""
        if window <= timedelta() or lease <= timedelta():
            raise WrongUse(f"window and lease of a store: got {window} and {lease}, expected positive values")
        self._table = Table(table)
        self._name = name
        self._window = window.total_seconds()
        self.lease = lease

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""
        claim = Claim(identity, uuid.uuid4().hex)
        entity = self._entity(claim, is_done=False, until=now + self.lease.total_seconds())
        if self._table.write(entity, None):
            return claim
        found = self._table.read(self._keys(identity), _PROPERTIES)
        if found is None:
            return State.BUSY  # released at this moment: the next attempt succeeds or finds out
        if found["token"] == claim.token:
            return claim  # created, but the answer was lost
        if found["until"] > now:
            return State.DONE if found["is_done"] else State.BUSY
        return claim if self._table.write(entity, found) else State.BUSY

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim has expired."""
        self._replace(claim, self._entity(claim, is_done=True, until=now + self._window))

    def renew(self, claim: Claim, now: float) -> None:
        """Extend a claim by a lease from now; raises ClaimLost if it is no longer held."""
        self._replace(claim, self._entity(claim, is_done=False, until=now + self.lease.total_seconds()))

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed; do nothing if it has expired."""
        self._changed_while_held(claim, self._table.delete)

    def purge(self, now: float) -> int:
        """Delete expired entities and return their number. Units: now in seconds since 1970."""
        query = "PartitionKey ge @first and PartitionKey lt @last and until le @now"
        values = {"first": f"{self._name}-", "last": f"{self._name}.", "now": float(now)}
        return sum(self._table.delete(entity) for entity in self._table.find(query, values))

    def _replace(self, claim: Claim, entity: dict[str, Any]) -> None:
        if not self._changed_while_held(claim, lambda found: self._table.write(entity, found)):
            raise ClaimLost(f"{self._table.name}, message {claim.identity}: its claim has expired")

    def _changed_while_held(self, claim: Claim, change: Callable[[TableEntity], bool]) -> bool:
        """
        Change the entity of a claim, and return whether the claim is held or has been recorded.

        A renewal may interfere, so it is repeated; after a lost answer the repeated change finds that it was made.
        """
        keys = self._keys(claim.identity)
        while (found := self._table.read(keys, _PROPERTIES)) is not None and found["token"] == claim.token:
            if found["is_done"] or change(found):
                return True
        return False

    def _keys(self, identity: str) -> dict[str, Any]:
        # Ids may contain characters that keys must not; several partitions share the load.
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return {"PartitionKey": f"{self._name}-{digest[:2]}", "RowKey": digest}

    def _entity(self, claim: Claim, *, is_done: bool, until: float) -> dict[str, Any]:
        return {**self._keys(claim.identity), "token": claim.token, "is_done": is_done, "until": float(until)}
