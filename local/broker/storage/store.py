"""
A namespace whose state is kept in a folder.

Shape:  the folder holds one log, `<generation>.log`. To compact is to write what there is into the next generation and
        then to delete the one before; a start compacts as well. `.new` is one that was not finished.
"""

import fcntl
import heapq
import itertools
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from local.broker.config import NamespaceConfig
from local.broker.core.entities import Backlog, Queue, Subscription, Topic
from local.broker.core.hub import Hub, Partition
from local.broker.core.incoming import IncomingMessages
from local.broker.core.namespace import Namespace
from local.broker.core.recording import scheduled_path
from local.broker.core.session_store import SessionStore
from local.broker.core.store import MessageStore
from local.broker.storage import entities
from local.broker.storage.log import Log, LogReader, StorageError
from local.broker.storage.records import RecordWriter, read_records
from local.broker.storage.state import State
from shared.clock import Clock

LOG = logging.getLogger(__name__)

COMPACT_AT: Final = 64 * 1024 * 1024
_GROWTH = 3  # how large the log may get, as a multiple of what was in it after it was compacted
_RECORDS_IN_FRAME = 1000


class NamespaceStorage:
    """
    The folder of one namespace, and the namespace that is kept in it.

    What has changed since the last `commit` is lost with the process; nobody may be told of it before.
    """

    def __init__(
        self,
        folder: Path,
        config: NamespaceConfig,
        clock: Clock,
        *,
        is_synced: bool = True,
        compact_at: int = COMPACT_AT,
    ) -> None:
        """
        Take the namespace out of *folder*, which is made if there is none; StorageError if that is not possible.

        Without *is_synced* a commit survives the end of the process, but not that of the machine.
        """
        self._folder = folder
        self._config = config
        self._clock = clock
        self._is_synced = is_synced
        self._compact_at = self._min_size = compact_at
        self._records = RecordWriter()
        self._noted: dict[str, tuple[entities.Kept, object, object]] = {}
        self._lock = _lock(folder)
        try:
            self._open(*_read(folder))
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self, generation: int, state: State) -> None:
        settled = entities.settle(self._config, state.entities)
        self._declared = settled.declared
        self._deleted = {
            key: record
            for key, record in state.entities.items()
            if record["kind"] is None and self._declared.get(key) == record["declared"]
        }
        self.namespace = Namespace(settled.config, self._clock, self._records)
        _restore(self.namespace, state)
        entities.restore(self.namespace, state.entities, self._declared)
        self._generation = generation
        self._log = self._compacted()

    def __enter__(self) -> Self:
        """Keep the folder for as long as the context lasts."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is left, and let the folder go."""
        try:
            self.commit()
        finally:
            self.close()

    def commit(self) -> None:
        """Write all changes there have been; StorageError if that is not possible."""
        self._note_entities()
        payload = self._records.take()
        if payload:
            self._log.append(payload)
            if self._log.size > self._compact_at:
                before, self._log = self._log, self._compacted()
                before.close()

    def reset(self) -> Namespace:
        """Return the namespace as it is configured, without messages; what was kept is forgotten."""
        self._deleted.clear()
        # The connections to the namespace there was so far may still tell of its end.
        self._records = RecordWriter()
        self.namespace = Namespace(self._config, self._clock, self._records)
        before, self._log = self._log, self._compacted()
        before.close()
        return self.namespace

    def close(self) -> None:
        """Let the folder go; what has not been committed is lost."""
        self._log.close()
        os.close(self._lock)

    def _note_entities(self) -> None:
        """Write the entities that are new, changed or gone since this was last done."""
        # Compared rather than told of: rules and configurations are replaced as a whole, in several places.
        present: dict[str, tuple[entities.Kept, object, object]] = {}
        for key, entity in entities.entities_of(self.namespace):
            rules = entity.rule_book.rules if isinstance(entity, Subscription) else None
            parts = present[key] = entity, entity.config, rules
            noted = self._noted.get(key)
            if noted is not None and noted[0] is not entity:
                # Its messages may have been told of already, and are cleared with those of the one before.
                self._clear(noted[0])
                if isinstance(entity, Subscription):
                    _write_stores(entity.backlog.stores, self._records, _nothing)
                else:
                    _write_entity(entity, self._records)
            if noted is None or any(part is not other for part, other in zip(parts, noted, strict=True)):
                self._records.entity(key, entities.record_of(entity, self._declared.get(key)))
        for key in self._noted.keys() - present.keys():
            self._clear(self._noted[key][0])
            record = self._deleted[key] = entities.record_of_none(key, self._declared.get(key))
            self._records.entity(key, record)
        self._noted = present

    def _clear(self, entity: entities.Kept) -> None:
        for path in entities.places_of(entity):
            self._records.cleared(path)

    def _compacted(self) -> Log:
        """Return a log of the next generation with all that there is."""
        self._generation += 1
        path = self._folder / f"{self._generation:08}.log"
        log = Log(path.with_suffix(".new"), is_synced=False)
        self._records.restart()
        self._noted.clear()
        for key, record in self._deleted.items():
            self._records.entity(key, record)
        self._note_entities()
        for _, entity in entities.entities_of(self.namespace):
            _write_entity(entity, self._records, lambda: log.append(self._records.take()))
        log.append(self._records.take())
        log.rename(path)
        log.is_synced = self._is_synced
        for other in self._folder.glob("*.log"):
            if other != path:
                other.unlink()
        self._compact_at = max(self._min_size, _GROWTH * log.size)
        return log


def folder_name(namespace: str) -> str:
    """Return the name of the folder for a namespace, whatever characters it has in its name."""
    return quote(namespace, safe="").replace(".", "%2E")


def _lock(folder: Path) -> int:
    """Return the file whose lock says that a process uses the folder; the lock ends with the process."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StorageError(f"{folder}: another broker uses it") from error
    return lock


def _read(folder: Path) -> tuple[int, State]:
    """Return the last generation in a folder and its state; 0 and nothing for a new folder."""
    for unfinished in folder.glob("*.new"):
        unfinished.unlink()
    logs = sorted(folder.glob("*.log"))
    if not logs:
        return 0, State()
    path = logs[-1]
    try:
        reader = LogReader(path)
        state = read_records(reader.frames())
        generation = int(path.stem)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise StorageError(f"{path}: is not named by a generation, expected a number") from error
    if reader.torn:
        LOG.warning("%s: ends with %d bytes of a change that was not finished; it is left out", path, reader.torn)
    return generation, state


def _restore(namespace: Namespace, state: State) -> None:
    for queue in namespace.queues.values():
        scheduled = state.place(scheduled_path(queue.path))
        _restore_backlog(queue.backlog, state, scheduled.last_number)
        queue.incoming.restore(scheduled.in_order, scheduled.seen)
    for topic in namespace.topics.values():
        scheduled = state.place(scheduled_path(topic.path))
        topic.incoming.restore(scheduled.in_order, scheduled.seen)
        topic.restore(scheduled.last_number)
        for subscription in topic.subscriptions.values():
            _restore_backlog(subscription.backlog, state)
    for hub in namespace.hubs.values():
        for partition in hub.partitions:
            partition.restore(state.place(partition.path).events)


def _restore_backlog(backlog: Backlog, state: State, last_number: int = 0) -> None:
    for store in backlog.stores:
        place = state.place(store.path)
        if isinstance(store, SessionStore):
            for session_id, (session_state, at) in place.sessions.items():
                store.restore_session(session_id, session_state, at)
        # The numbers of scheduled messages are out of the same sequence.
        given = last_number if store is backlog.store else 0
        store.restore(place.in_order, max(place.last_number, given))


def _nothing() -> None:
    pass


def _write_entity(entity: entities.Kept, records: RecordWriter, flush: Callable[[], None] = _nothing) -> None:
    """Write all that an entity holds, a topic with its subscriptions, with a *flush* now and then."""
    match entity:
        case Queue():
            _write_stores(entity.backlog.stores, records, flush)
            _write_incoming(entity.path, entity.incoming, records, flush)
        case Topic():
            records.numbered(scheduled_path(entity.path), entity.last_sequence_number)
            _write_incoming(entity.path, entity.incoming, records, flush)
            # All at once, so that copies of a message come one after the other.
            stores = [each.backlog.stores for each in entity.subscriptions.values()]
            _write_stores(tuple(itertools.chain.from_iterable(stores)), records, flush)
        case Hub():
            for partition in entity.partitions:
                _write_partition(partition, records, flush)
        case Subscription():
            pass  # written with its topic


def _write_stores(stores: tuple[MessageStore, ...], records: RecordWriter, flush: Callable[[], None]) -> None:
    for store in stores:
        records.numbered(store.path, store.last_sequence_number)
        if isinstance(store, SessionStore):
            for session_id, session_state, at in store.session_states:
                records.session_updated(store.path, session_id, session_state, at)
    messages = heapq.merge(
        *(zip(itertools.repeat(store.path), store.messages.values(), strict=False) for store in stores),
        key=lambda item: item[1].enqueue_sequence_number,
    )
    for number, (path, message) in enumerate(messages, 1):
        records.stored(path, message)
        if number % _RECORDS_IN_FRAME == 0:
            flush()
    flush()


def _write_incoming(
    entity_path: str, incoming: IncomingMessages, records: RecordWriter, flush: Callable[[], None]
) -> None:
    path = scheduled_path(entity_path)
    for message in incoming.scheduled.values():
        records.stored(path, message)
    for message_id, at in incoming.history.items():
        records.seen(path, message_id, at)
    flush()


def _write_partition(partition: Partition, records: RecordWriter, flush: Callable[[], None]) -> None:
    events = partition.events
    if not events and partition.last is not None:
        events = [partition.last]  # where the next one goes on
    for start in range(0, len(events), _RECORDS_IN_FRAME):
        records.appended(partition.path, events[start : start + _RECORDS_IN_FRAME])
        flush()
