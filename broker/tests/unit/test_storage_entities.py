"""Stored entities and the configuration files: which of the two is in force after a restart."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from broker.tests.unit.namespaces import ids_in, take_all
from broker.tests.unit.stored_namespace import CONFIG, RULE, StorageFolder, encoded, publish
from busway_broker.config import QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.administration import Administration
from busway_broker.core.content import read_content
from busway_broker.storage.database import StorageError
from busway_broker.storage.namespace_storage import folder_name


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StorageFolder]:
    with StorageFolder.in_use(tmp_path) as folder:
        yield folder


def test_entities_created_changed_and_deleted_at_run_time_stay_so(folder: StorageFolder) -> None:
    storage = folder.open()
    administration = Administration(storage.namespace)
    administration.create_queue(QueueConfig(name="new", user_metadata="mine"))
    plain = storage.namespace.queue("plain")
    administration.update(plain, replace(plain.config, lock_duration=dt.timedelta(seconds=7)))
    administration.delete("unique")
    administration.delete_subscription("topic", "all")
    administration.create_subscription("topic", SubscriptionConfig(name="added", rules=(RULE,)))
    publish(storage, "a", queue="new")
    for _ in range(2):
        kept = folder.reopen()
        assert kept.namespace.queue("new").config.user_metadata == "mine"
        assert ids_in(kept.namespace, "new") == ["a"]
        assert kept.namespace.queue("plain").config.lock_duration == dt.timedelta(seconds=7)
        assert "unique" not in kept.namespace.queues
        assert set(kept.namespace.topic("topic").subscriptions) == {"marked", "added"}


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_entity_created_again_under_the_same_name_has_its_own_messages(
    folder: StorageFolder, is_committed: bool
) -> None:
    storage = folder.open()
    publish(storage, "old")
    administration = Administration(storage.namespace)
    administration.delete("plain")
    if is_committed:
        storage.commit()
    administration.create_queue(QueueConfig(name="plain"))
    administration.delete_subscription("topic", "all")
    administration.create_subscription("topic", SubscriptionConfig(name="all"))
    storage.namespace.topic("topic").publish(read_content(encoded("news")))
    publish(storage, "new")
    kept = folder.reopen()
    assert ids_in(kept.namespace, "plain") == ["new"]
    assert ids_in(kept.namespace, "topic/subscriptions/all") == ["news"]
    assert kept.namespace.store("plain").numbers.last == [1]


def test_a_changed_description_in_the_files_takes_effect_and_messages_stay(folder: StorageFolder) -> None:
    storage = folder.open()
    publish(storage, "a")
    Administration(storage.namespace).delete("unique")
    storage.commit()
    changed = [
        replace(queue, max_delivery_count=9) if queue.name in {"Plain", "unique"} else queue for queue in CONFIG.queues
    ]
    kept = folder.reopen(replace(CONFIG, queues=(*changed, QueueConfig(name="more"))))
    assert kept.namespace.queue("plain").config.max_delivery_count == 9
    assert kept.namespace.queue("unique").config.max_delivery_count == 9
    assert ids_in(kept.namespace, "plain") == ["a"]
    assert ids_in(kept.namespace, "more") == []


def test_an_entity_that_the_files_no_longer_name_is_kept_with_a_warning(
    folder: StorageFolder, caplog: pytest.LogCaptureFixture
) -> None:
    publish(folder.open(), "a")
    kept = folder.reopen(replace(CONFIG, queues=CONFIG.queues[1:3], topics=()))
    assert ids_in(kept.namespace, "plain") == ["a"]
    assert "west: Plain is no longer in the configuration; it is kept" in caplog.text


def test_requiring_sessions_of_stored_messages_stops_the_start(folder: StorageFolder) -> None:
    publish(folder.open(), "a")
    queues = (replace(CONFIG.queues[0], requires_session=True), *CONFIG.queues[1:])
    with pytest.raises(StorageError, match="Plain: requires_session is True, expected False"):
        folder.reopen(replace(CONFIG, queues=queues))


@pytest.mark.parametrize(("name", "expected"), [("west", "west"), ("..", "%2E%2E"), ("a/b", "a%2Fb")])
def test_a_folder_name_is_safe_for_any_namespace_name(name: str, expected: str) -> None:
    assert folder_name(name) == expected


def test_a_deleted_entity_does_not_change_the_messages_of_its_successor(folder: StorageFolder) -> None:
    storage = folder.open()
    publish(storage, "old")
    old = storage.namespace.queue("plain").backlog.store
    [token] = take_all(storage.namespace)
    Administration(storage.namespace).delete("plain")
    storage.commit()
    Administration(storage.namespace).create_queue(QueueConfig(name="plain"))
    publish(storage, "new")
    old.complete(token)
    storage.commit()
    assert ids_in(folder.reopen().namespace, "plain") == ["new"]


def test_another_kind_for_a_stored_entity_stops_the_start(folder: StorageFolder) -> None:
    publish(folder.open(), "a")
    with pytest.raises(StorageError, match="Plain: is a topic, expected a queue as in the stored data"):
        folder.reopen(replace(CONFIG, queues=CONFIG.queues[1:3], topics=(TopicConfig(name="Plain"),)))
