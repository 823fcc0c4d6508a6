"""A namespace whose state is kept in a folder."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import quote

from busway_broker.config import NamespaceConfig
from busway_broker.core.entities import Subscription
from busway_broker.core.home import Recorder
from busway_broker.core.hub import Hub, Partition
from busway_broker.core.incoming import IncomingMessages
from busway_broker.core.namespace import Namespace
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.storage import entities
from busway_broker.storage.changes import Changes
from busway_broker.storage.database import TABLES, Database
from busway_broker.storage.loading import Loader
from shared.clock import Clock

type _Place = MessageStore | IncomingMessages | Partition


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
        config, self._declared = entities.settle(self._config, records)
        self._deleted = {
            key: record
            for key, record in records.items()
            if record["kind"] is None and self._declared.get(key) == record["declared"]
        }
        self._changes = loader.changes()
        self.namespace = Namespace(config, self._clock, self._changes)
        for _, entity in entities.entities_of(self.namespace):
            for place in _places(entity):
                _restore(place, loader)
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
                for place in _places(entity):
                    _note(place, self._changes)
            if noted is None or any(part is not other for part, other in zip(parts, noted, strict=True)):
                self._changes.entity(key, entities.record_of(entity, self._declared.get(key)))
        for key in self._noted.keys() - present.keys():
            self._clear(self._noted[key][0])
            record = self._deleted[key] = entities.record_of_deleted(key, self._declared.get(key))
            self._changes.entity(key, record)
        self._noted = present

    def _clear(self, entity: entities.Kept) -> None:
        for place in _places(entity):
            for path in _paths(place):
                self._changes.cleared(path)
            # Links that are being closed may still change messages of the old entity.
            place.recorder = Recorder()


def folder_name(namespace: str) -> str:
    """Return the name of the folder for a namespace, whatever characters its name has."""
    return quote(namespace, safe="").replace(".", "%2E")


def _places(entity: entities.Kept) -> Sequence[_Place]:
    """Return what holds the messages or events of an entity, without the subscriptions of a topic."""
    return entity.partitions if isinstance(entity, Hub) else entity.parts


def _paths(place: _Place) -> Iterable[str]:
    """Yield the paths of a place: one for each partition with numbers of its own."""
    return (place.path,) if isinstance(place, Partition) else place.numbers.paths(place.path)


def _restore(place: _Place, loader: Loader) -> None:
    if isinstance(place, Partition):
        place.restore(loader.events(place.path))
        return
    place.numbers.restore(map(loader.last_number, _paths(place)))
    messages = loader.messages(place.path)
    if isinstance(place, IncomingMessages):
        place.restore(messages, loader.message_ids(place.path))
        return
    if isinstance(place, SessionStore):
        for session in loader.sessions(place.path):
            place.restore_session(*session)
    place.restore(messages)


def _note(place: _Place, changes: Changes) -> None:
    """Note everything that a place holds."""
    if isinstance(place, Partition):
        changes.appended(place.path, place.events)
        return
    for number in place.numbers.last:
        changes.numbered(place.path, number)
    if isinstance(place, SessionStore):
        for session_id, session_state, at in place.session_states:
            changes.session_updated(place.path, session_id, session_state, at)
    for message in (place.scheduled if isinstance(place, IncomingMessages) else place.messages).values():
        changes.stored(place.path, message)
    if isinstance(place, IncomingMessages):
        for message_id, at in place.history.items():
            changes.seen(place.path, message_id, at)
