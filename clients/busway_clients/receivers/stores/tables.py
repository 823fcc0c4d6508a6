"""A store in a table of Azure Storage or Cosmos DB for Table, for receivers anywhere; needs the extra `tables`."""

import hashlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from busway_clients.errors import ClaimLost, StoreUnavailable, WrongUse
from busway_clients.extras import extra
from busway_clients.receivers.stores.in_memory import WINDOW
from busway_clients.receivers.stores.sqlite import LEASE
from busway_clients.receivers.stores.store import Claim, State

with extra("tables"):
    from azure.data.tables import TableClient, UpdateMode


Result = TypeVar("Result")
_CONDITION: dict[str, Any] = {"match_condition": MatchConditions.IfNotModified}


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
        self._table = table
        self._name = name
        self._window = window.total_seconds()
        self.lease = lease

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""
        claim = Claim(identity, uuid.uuid4().hex)
        entity = self._entity(claim, is_done=False, until=now + self.lease.total_seconds())
        if self._was_first(lambda: self._table.create_entity(entity)):
            return claim
        found = self._read(identity)
        if found is None:
            return State.BUSY  # released at this moment: the next attempt succeeds or finds out
        held, etag = found
        if held["token"] == claim.token:
            return claim  # created, but the answer was lost
        if held["until"] > now:
            return State.DONE if held["is_done"] else State.BUSY
        return claim if self._was_first(lambda: self._replace(entity, etag)) else State.BUSY

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim has expired."""
        entity = self._entity(claim, is_done=True, until=now + self._window)
        if not self._changed_while_held(claim, lambda etag: self._replace(entity, etag)):
            raise self._lost(claim)

    def renew(self, claim: Claim, now: float) -> None:
        """Extend a claim by a lease from now; raises ClaimLost if it is no longer held."""
        entity = self._entity(claim, is_done=False, until=now + self.lease.total_seconds())
        if not self._changed_while_held(claim, lambda etag: self._replace(entity, etag)):
            raise self._lost(claim)

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed; do nothing if it has expired."""
        keys = self._keys(claim.identity)
        self._changed_while_held(claim, lambda etag: self._table.delete_entity(keys, etag=etag, **_CONDITION))

    def purge(self, now: float) -> int:
        """Delete expired entities and return their number. Units: now in seconds since 1970."""
        purged = 0
        with self._translated():
            query = "PartitionKey ge @first and PartitionKey lt @last and until le @now"
            values = {"first": f"{self._name}-", "last": f"{self._name}.", "now": float(now)}
            for entity in self._table.query_entities(query, parameters=values, select=["PartitionKey", "RowKey"]):
                etag = entity.metadata["etag"]
                keys = {"PartitionKey": entity["PartitionKey"], "RowKey": entity["RowKey"]}
                purged += self._was_first(lambda: self._table.delete_entity(keys, etag=etag, **_CONDITION))  # noqa: B023 - called at once
        return purged

    def _changed_while_held(self, claim: Claim, change: Callable[[str], object]) -> bool:
        """
        Change the entity of a claim, and return whether the claim is held or has been recorded.

        A renewal may interfere, so it is repeated; after a lost answer the repeated change finds that it was made.
        """
        while (found := self._read(claim.identity)) is not None and found[0]["token"] == claim.token:
            etag = found[1]
            if found[0]["is_done"] or self._was_first(lambda: change(etag)):  # noqa: B023 - called at once
                return True
        return False

    def _replace(self, entity: dict[str, Any], etag: str) -> None:
        self._table.update_entity(entity, mode=UpdateMode.REPLACE, etag=etag, **_CONDITION)

    def _keys(self, identity: str) -> dict[str, Any]:
        # Ids may contain characters that keys must not; several partitions share the load.
        digest = hashlib.sha256(identity.encode()).hexdigest()
        return {"PartitionKey": f"{self._name}-{digest[:2]}", "RowKey": digest}

    def _entity(self, claim: Claim, *, is_done: bool, until: float) -> dict[str, Any]:
        return {**self._keys(claim.identity), "token": claim.token, "is_done": is_done, "until": float(until)}

    def _read(self, identity: str) -> tuple[Any, str] | None:
        keys = self._keys(identity)
        try:
            with self._translated():
                entity = self._table.get_entity(keys["PartitionKey"], keys["RowKey"])
        except ResourceNotFoundError:
            return None
        if not {"token", "is_done", "until"} <= {*entity}:
            text = "an entity has another schema, expected a table that nothing else writes to"
            raise StoreUnavailable(f"table {self._table.table_name}: {text}")
        return entity, str(entity.metadata["etag"])

    def _was_first(self, act: Callable[[], object]) -> bool:
        try:
            with self._translated():
                act()
        except (ResourceExistsError, ResourceModifiedError, ResourceNotFoundError):
            return False
        return True

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (ResourceExistsError, ResourceModifiedError):
            raise
        except AzureError as error:
            missing = "TableNotFound" in str(error)
            if isinstance(error, ResourceNotFoundError) and not missing:
                raise
            raise StoreUnavailable(
                f"table {self._table.table_name}: {'does not exist' if missing else type(error).__name__}"
            ) from error

    def _lost(self, claim: Claim) -> ClaimLost:
        return ClaimLost(f"table {self._table.table_name}, message {claim.identity}: its claim has expired")
