"""A namespace whose state is kept in a folder."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self
from urllib.parse import quote

from busway_broker.config import NamespaceConfig
from busway_broker.core.backlog import Backlog
from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.home import scheduled_path
from busway_broker.core.hub import Hub, Partition
from busway_broker.core.incoming import IncomingMessages
from busway_broker.core.namespace import Namespace
from busway_broker.core.sequence_numbers import SequenceNumbers
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.storage import entities
from busway_broker.storage.changes import Changes
from busway_broker.storage.database import TABLES, Database
from busway_broker.storage.loading import Loader
from shared.clock import Clock


class NamespaceStorage:
    """
    The folder of one namespace, and the namespace that is kept in it.

    What has changed since the last `commit` is lost with the process; no request may be answered before.
    """

    def __init__(self, folder: Path, config: NamespaceConfig, clock: Clock, *, is_synced: bool = True) -> None:
        """
        Load the namespace from *folder*, which is created if it does not exist; StorageError if that fails.

        Without *is_synced* a commit survives the end of the process, but perhaps not a failure of the machine.
        """
        self._config = config
        self._clock = clock
        self._noted: dict[str, tuple[entities.Kept, object, object]] = {}
        self._deleted: dict[str, entities.Record] = {}
        self._database = Database(folder, is_synced=is_synced)
        try:
            self._load()
        except BaseException:
            self._database.close()
            raise

    def _load(self) -> None:
        loader = Loader(self._database)
        records = loader.entities()
        settled = entities.settle(self._config, records)
        self._declared = settled.declared
        self._deleted = {
            key: record
            for key, record in records.items()
            if record["kind"] is None and self._declared.get(key) == record["declared"]
        }
        self._changes = loader.changes()
        self.namespace = Namespace(settled.config, self._clock, self._changes)
        _restore(self.namespace, loader)
        entities.restore(self.namespace, records, self._declared)
        self._note_entities()
        self._database.transact(self._write_first)

    def _write_first(self, to: sqlite3.Connection) -> None:
        to.execute("DELETE FROM contents WHERE id NOT IN (SELECT content FROM messages)")
        to.execute("DELETE FROM entities")
        for key, record in self._deleted.items():
            self._changes.entity(key, record)
        self._changes.write(to)

    def __enter__(self) -> Self:
        """Keep the folder for as long as the context lasts."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write the last changes and close the folder."""
        try:
            self.commit()
        finally:
            self.close()

    def commit(self) -> None:
        """Write all changes since the last commit; StorageError if that fails."""
        self._note_entities()
        if not self._changes.are_none:
            self._database.transact(self._changes.write)

    def reset(self) -> Namespace:
        """Return the namespace as it is configured, without messages; everything that was stored is deleted."""
        self._deleted.clear()
        self._noted.clear()
        # A new recorder: connections to the old namespace may still report changes until they are closed.
        self._changes = Changes({}, 1, {})
        self.namespace = Namespace(self._config, self._clock, self._changes)
        self._note_entities()
        self._database.transact(self._write_reset)
        return self.namespace

    def _write_reset(self, to: sqlite3.Connection) -> None:
        for table in TABLES:
            to.execute(f"DELETE FROM {table}")  # noqa: S608 - the names of our own tables
        self._changes.write(to)

    def close(self) -> None:
        """Close the folder; what has not been committed is lost."""
        self._database.close()

    def _note_entities(self) -> None:
        """Note the entities that are new, changed or deleted since this was last called."""
        # Compared here rather than reported: rules and configurations are replaced as a whole, in several places.
        present: dict[str, tuple[entities.Kept, object, object]] = {}
        for key, entity in entities.entities_of(self.namespace):
            rules = entity.rule_book.rules if isinstance(entity, Subscription) else None
            parts = present[key] = entity, entity.config, rules
            noted = self._noted.get(key)
            if noted is not None and noted[0] is not entity:
                # Some of its messages may have been noted already; they are cleared with those of the old entity.
                self._clear(noted[0])
                _note_all(entity, self._changes)
            if noted is None or any(part is not other for part, other in zip(parts, noted, strict=True)):
                self._changes.entity(key, entities.record_of(entity, self._declared.get(key)))
        for key in self._noted.keys() - present.keys():
            self._clear(self._noted[key][0])
            record = self._deleted[key] = entities.record_of_deleted(key, self._declared.get(key))
            self._changes.entity(key, record)
        self._noted = present

    def _clear(self, entity: entities.Kept) -> None:
        for path in entities.places_of(entity):
            self._changes.cleared(path)
        # Links that are being closed may still change messages of the old entity.
        for part in _recorded_parts(entity):
            part.recorder = None


def folder_name(namespace: str) -> str:
    """Return the name of the folder for a namespace, whatever characters its name has."""
    return quote(namespace, safe="").replace(".", "%2E")


def _recorded_parts(entity: entities.Kept) -> Iterator[MessageStore | IncomingMessages | Partition]:
    match entity:
        case Queue() | Subscription():
            yield from entity.backlog.stores
        case Hub():
            yield from entity.partitions
    if isinstance(entity, Queue | Topic):
        yield entity.incoming


def _restore(namespace: Namespace, loader: Loader) -> None:
    for queue in namespace.queues.values():
        scheduled = scheduled_path(queue.path)
        _restore_backlog(queue.backlog, loader)
        queue.incoming.numbers.restore(_last_numbers(queue.incoming.numbers, loader, scheduled))
        queue.incoming.restore(loader.messages(scheduled), loader.message_ids(scheduled))
    for topic in namespace.topics.values():
        scheduled = scheduled_path(topic.path)
        topic.incoming.restore(loader.messages(scheduled), loader.message_ids(scheduled))
        topic.incoming.numbers.restore(_last_numbers(topic.incoming.numbers, loader, scheduled))
        for subscription in topic.subscriptions.values():
            _restore_backlog(subscription.backlog, loader)
    for hub in namespace.hubs.values():
        for partition in hub.partitions:
            partition.restore(loader.events(partition.path))


def _last_numbers(numbers: SequenceNumbers, loader: Loader, path: str) -> Iterator[int]:
    return map(loader.last_number, numbers.paths(path))


def _restore_backlog(backlog: Backlog, loader: Loader) -> None:
    for store in backlog.stores:
        if isinstance(store, SessionStore):
            for session_id, session_state, at in loader.sessions(store.path):
                store.restore_session(session_id, session_state, at)
        store.restore(loader.messages(store.path), _last_numbers(store.numbers, loader, store.path))


def _note_all(entity: entities.Kept, changes: Changes) -> None:
    """Note everything that an entity holds, without the subscriptions of a topic."""
    match entity:
        case Queue() | Subscription():
            for store in entity.backlog.stores:
                _note_store(store, changes)
        case Topic():
            for number in entity.incoming.numbers.last:
                changes.numbered(scheduled_path(entity.path), number)
        case Hub():
            for partition in entity.partitions:
                changes.appended(partition.path, partition.events)
    if isinstance(entity, Queue | Topic):
        path = scheduled_path(entity.path)
        for message in entity.incoming.scheduled.values():
            changes.stored(path, message)
        for message_id, at in entity.incoming.history.items():
            changes.seen(path, message_id, at)


def _note_store(store: MessageStore, changes: Changes) -> None:
    for number in store.numbers.last:
        changes.numbered(store.path, number)
    if isinstance(store, SessionStore):
        for session_id, session_state, at in store.session_states:
            changes.session_updated(store.path, session_id, session_state, at)
    for message in store.messages.values():
        changes.stored(store.path, message)
