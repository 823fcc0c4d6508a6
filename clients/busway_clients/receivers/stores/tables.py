"""A table of Azure Storage or of Cosmos DB for Table: for receivers anywhere; needs the extra `tables`."""

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
from busway_clients.receivers.stores.memory import WINDOW
from busway_clients.receivers.stores.sqlite import LEASE
from busway_clients.receivers.stores.store import Claim, State

with extra("tables"):
    from azure.data.tables import TableClient, UpdateMode


Result = TypeVar("Result")
_CONDITION: dict[str, Any] = {"match_condition": MatchConditions.IfNotModified}


class TablesStore:
    """
    Remembers for *window* what was processed, in a table that exists; the entities' ETags are the locks.

    A claim lasts for *lease*, which has to be longer than the application takes for a message and than clocks differ. A
    table forgets nothing by itself: call `purge` from time to time.
    """

    is_local = False

    def __init__(self, table: TableClient, name: str, window: timedelta = WINDOW, *, lease: timedelta = LEASE) -> None:
        """Share what is remembered with the receivers that give the same *name*, such as that of their queue."""
        if window <= timedelta() or lease <= timedelta():
            raise WrongUse(f"the window and lease of a store: are {window} and {lease}, expected positive ones")
        self._table = table
        self._name = name
        self._window = window.total_seconds()
        self._lease = lease.total_seconds()

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, of all who ask one at a time; or say why not."""
        claim = Claim(identity, uuid.uuid4().hex)
        entity = self._entity(claim, is_done=False, until=now + self._lease)
        if self._was_first(lambda: self._table.create_entity(entity)):
            return claim
        found = self._read(identity)
        if found is None:
            return State.BUSY  # given back this moment: the next look will tell
        held, etag = found
        if held["token"] == claim.token:
            return claim  # created, and the answer was lost
        if held["until"] > now:
            return State.DONE if held["is_done"] else State.BUSY
        update: Callable[[], Any] = lambda: self._table.update_entity(  # noqa: E731 - one call, made below
            entity, mode=UpdateMode.REPLACE, etag=etag, **_CONDITION
        )
        return claim if self._was_first(update) else State.BUSY

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim has been processed; raises ClaimLost where the claim has run out."""
        found = self._read(claim.identity)
        if found is None or found[0]["token"] != claim.token:
            raise self._lost(claim)
        entity = self._entity(claim, is_done=True, until=now + self._window)
        update: Callable[[], Any] = lambda: self._table.update_entity(  # noqa: E731 - likewise
            entity, mode=UpdateMode.REPLACE, etag=found[1], **_CONDITION
        )
        if not self._was_first(update):
            # Repeated after a lost answer, the update finds its own work.
            again = self._read(claim.identity)
            if again is None or again[0]["token"] != claim.token or not again[0]["is_done"]:
                raise self._lost(claim)

    def release(self, claim: Claim) -> None:
        """Give a claim back, so that another copy or delivery may be processed; nothing if it has run out."""
        found = self._read(claim.identity)
        if found is not None and found[0]["token"] == claim.token and not found[0]["is_done"]:
            keys = self._keys(claim.identity)
            self._was_first(lambda: self._table.delete_entity(keys, etag=found[1], **_CONDITION))

    def purge(self, now: float) -> int:
        """Remove what has ended, and return how much that was. Units: now in seconds since 1970."""
        purged = 0
        with self._translated():
            query = "PartitionKey ge @first and PartitionKey lt @last and until le @now"
            values = {"first": f"{self._name}-", "last": f"{self._name}.", "now": float(now)}
            for entity in self._table.query_entities(query, parameters=values, select=["PartitionKey", "RowKey"]):
                etag = entity.metadata["etag"]
                keys = {"PartitionKey": entity["PartitionKey"], "RowKey": entity["RowKey"]}
                purged += self._was_first(lambda: self._table.delete_entity(keys, etag=etag, **_CONDITION))  # noqa: B023 - made at once
        return purged

    def _keys(self, identity: str) -> dict[str, Any]:
        # Ids may hold what keys must not, and the partitions share the load.
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
            raise StoreUnavailable(f"table {self._table.table_name}: holds an entity of another schema")
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
        return ClaimLost(f"table {self._table.table_name}, message {claim.identity}: its claim has run out")
