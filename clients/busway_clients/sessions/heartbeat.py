"""What keeps a lease while the application works."""

from collections.abc import Generator
from typing import Any

from busway_clients.sessions.effects import Commit, Effect, Hold, Read
from busway_clients.sessions.errors import Conflict
from busway_clients.sessions.leases import Record


def beat(hold: Hold) -> Generator[Effect, Any, bool]:
    """Yield what renews a lease while the application works; whether it is still this worker's."""
    while True:
        try:
            yield Commit(hold, {}, [], is_beat=True)
        except Conflict:
            record: Record = yield Read(hold.partition, [])
            lease = record.lease
            if lease is None or (lease.worker, lease.token) != (hold.lease.worker, hold.lease.token):
                hold.is_lost = True
                return False
            # Someone has registered messages: the visit must read them before it begins with another.
            hold.lease, hold.version, hold.is_stale = lease, record.version, True
        else:
            return True
