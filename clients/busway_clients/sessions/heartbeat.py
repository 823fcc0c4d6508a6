"""The renewal of a lease while the application works."""

from collections.abc import Generator
from typing import Any

from busway_clients.sessions.effects import Commit, Effect, HeldLease, Read
from busway_clients.sessions.errors import Conflict
from busway_clients.sessions.leases import Record


def renew(held: HeldLease) -> Generator[Effect, Any, bool]:
    """Renew a lease, and return whether it is still held by this worker."""
    while True:
        try:
            yield Commit(held, {}, [], is_renewal=True)
        except Conflict:
            record: Record = yield Read(held.partition, [])
            lease = record.lease
            if lease is None or (lease.worker, lease.token) != (held.lease.worker, held.lease.token):
                held.is_lost = True
                return False
            # Someone has registered messages: the visit must read them before it begins with another.
            held.lease, held.version, held.is_stale = lease, record.version, True
        else:
            return True
