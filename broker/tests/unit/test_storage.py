"""The state of a namespace after a restart, whatever happened to the process and to the files."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.tests.unit.namespaces import ids_in, take_all
from broker.tests.unit.stored_namespace import (
    CONFIG,
    OPERATIONS,
    StorageFolder,
    encoded,
    operate,
    picture,
    publish,
)
from busway_broker.config import SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.event import read_event
from busway_broker.storage.database import StorageError


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[StorageFolder]:
    with StorageFolder.in_use(tmp_path) as folder:
        yield folder


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 20)), max_size=25), every=st.integers(1, 4))
def test_everything_is_there_after_any_operations(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], every: int
) -> None:
    with StorageFolder.in_use(tmp_path_factory.mktemp("data")) as folder:
        storage = folder.open()
        for number, (operation, argument) in enumerate(steps):
            operate(storage.namespace, folder.clock, operation, argument)
            if number % every == 0:
                storage.commit()
        storage.commit()
        expected = picture(storage.namespace)
        for _ in range(2):
            kept = folder.reopen()
            assert picture(kept.namespace) == expected
        # It also continues in the same way: deadlines, order, numbers.
        for operation, argument in [("time", 2), ("send", 1), ("settle", 0), ("time", 7), ("topic", 1), ("hub", 1)]:
            operate(kept.namespace, folder.clock, operation, argument)
        kept.namespace.queue("plain").backlog.store.dispatch()
        kept.commit()


def test_copies_in_subscriptions_share_their_bytes_on_the_disk_and_in_memory(folder: StorageFolder) -> None:
    subscriptions = tuple(SubscriptionConfig(name=f"s-{number}") for number in range(20))
    config = replace(CONFIG, topics=(TopicConfig(name="topic", subscriptions=subscriptions),))
    storage = folder.open(config)
    storage.namespace.topic("topic").publish(read_content(encoded("x" * 100)))
    storage.commit()
    files = folder.database.read_bytes() + folder.log.read_bytes()
    assert files.count(b"\xa1" + bytes([100]) + b"x" * 100) == 2, "the message id is a column, and part of the content"
    kept = folder.reopen(config).namespace.topic("topic").subscriptions.values()
    assert len({id(each.backlog.store.messages[1].content) for each in kept}) == 1


def test_a_shared_content_is_there_until_its_last_copy_is_gone(folder: StorageFolder) -> None:
    storage = folder.open()
    topic, store = storage.namespace.topic("topic"), storage.namespace.store("topic/subscriptions/all")
    for number in range(300):
        topic.publish(read_content(encoded(str(number), body=b"x" * 1000)))
        storage.commit()
        # The subscription "marked" keeps its copies.
        [message] = store.messages.values()
        [token] = take_all(storage.namespace, "topic/subscriptions/all")
        assert message.lock_token == token
        store.complete(token)
        storage.commit()
    kept = folder.reopen()
    assert ids_in(kept.namespace, "topic/subscriptions/all") == []
    assert ids_in(kept.namespace, "topic/subscriptions/marked") == [str(number) for number in range(300)]


def test_the_file_does_not_grow_with_messages_that_are_gone(folder: StorageFolder) -> None:
    storage = folder.open()
    store = storage.namespace.store("plain")
    for number in range(1000):
        publish(storage, f"{number}")
        for token in take_all(storage.namespace):
            store.complete(token)
        storage.commit()
    publish(storage, "left")
    assert folder.database.stat().st_size < 300_000
    assert folder.log.stat().st_size < 5_000_000
    kept = folder.reopen()
    assert ids_in(kept.namespace, "plain") == ["left"]
    assert kept.namespace.store("plain").numbers.last == [1001]


def test_message_ids_and_events_that_are_no_longer_needed_leave_the_file(folder: StorageFolder) -> None:
    storage = folder.open()
    for number in range(3):
        storage.namespace.queue("unique").publish(read_content(encoded(f"id-{number}")))
        storage.namespace.hub("hub").partitions[0].append([read_event(encoded("event"))])
        storage.commit()
        folder.clock.advance(3 * 3600)
    storage.namespace.hub("hub").partitions[0].append([read_event(encoded("event"))])
    storage.commit()
    storage.close()
    with closing(sqlite3.connect(folder.database)) as database:
        assert database.execute("SELECT count(*) FROM message_ids").fetchone() == (1,)
        assert database.execute("SELECT number FROM events").fetchall() == [(3,)]


def test_a_locked_message_is_ready_again_without_counting(folder: StorageFolder) -> None:
    storage = folder.open()
    publish(storage, "a")
    take_all(storage.namespace)
    storage.commit()
    kept = folder.reopen().namespace
    assert len(take_all(kept)) == 1
    assert kept.store("plain").messages[1].delivery_count == 0


def test_what_is_not_committed_is_lost_with_the_process(folder: StorageFolder) -> None:
    storage = folder.open()
    publish(storage, "a")
    storage.namespace.queue("plain").publish(read_content(encoded("b")))
    assert ids_in(folder.reopen().namespace, "plain") == ["a"]


def flip_a_body(data: bytearray) -> None:
    data[data.index(b"body of a")] ^= 1


def zero_the_pages(data: bytearray) -> None:
    data[4096:] = bytes(len(data) - 4096)


def truncate(data: bytearray) -> None:
    del data[len(data) // 2 :]


@pytest.mark.parametrize("damage", [flip_a_body, zero_the_pages, truncate])
def test_damage_stops_the_start(folder: StorageFolder, damage: Callable[[bytearray], None]) -> None:
    with folder.open() as storage:
        storage.namespace.queue("plain").publish(read_content(encoded("a", body=b"body of a")))
    data = bytearray(folder.database.read_bytes())
    damage(data)
    folder.database.write_bytes(data)
    with pytest.raises(StorageError, match=r"broker.sqlite: damaged.*restore the folder from a copy, or delete it"):
        folder.open()


def test_a_file_of_something_else_is_refused_and_left_as_it_is(folder: StorageFolder) -> None:
    folder.path.mkdir()
    folder.database.write_bytes(b"not a database" * 100)
    with pytest.raises(StorageError, match=r"broker.sqlite: not a database of the broker"):
        folder.open()
    folder.database.unlink()
    with closing(sqlite3.connect(folder.database)) as other:
        other.execute("CREATE TABLE messages (text)")
    before = folder.database.read_bytes()
    with pytest.raises(StorageError, match=r"broker.sqlite: not a database of the broker; choose another folder"):
        folder.open()
    assert folder.database.read_bytes() == before


def test_another_version_of_the_format_is_refused(folder: StorageFolder) -> None:
    folder.open().close()
    with closing(sqlite3.connect(folder.database)) as database:
        database.execute("PRAGMA user_version = 9")
    with pytest.raises(StorageError, match=r"broker.sqlite: format version 9, expected 1 to 2; use the version"):
        folder.open()


def test_a_folder_of_an_earlier_version_is_refused_and_left_as_it_is(folder: StorageFolder) -> None:
    folder.path.mkdir()
    (folder.path / "00000007.log").write_bytes(b"busway broker data 1\n")
    with pytest.raises(StorageError, match=r"00000007.log: the log format of an earlier version.*delete the folder"):
        folder.open()
    assert [each.name for each in folder.path.iterdir()] == ["00000007.log"]


def test_a_folder_that_cannot_be_created_is_named(folder: StorageFolder) -> None:
    folder.path.write_text("a file")
    with pytest.raises(StorageError, match=r"west/broker.sqlite: cannot be opened: File exists"):
        folder.open()


def test_a_folder_belongs_to_one_broker_at_a_time(folder: StorageFolder) -> None:
    first = folder.open()
    with pytest.raises(StorageError, match="another broker uses this folder"):
        folder.open()
    publish(first, "a")
    first.close()
    assert ids_in(folder.open().namespace, "plain") == ["a"]


def test_files_are_readable_by_their_owner_alone(folder: StorageFolder) -> None:
    publish(folder.open(), "a")
    assert folder.path.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in folder.path.iterdir()} == {0o600}


def test_reset_forgets_everything(folder: StorageFolder) -> None:
    storage = folder.open()
    publish(storage, "a")
    before = storage.namespace
    storage.reset()
    before.queue("plain").publish(read_content(encoded("late")))
    storage.commit()
    publish(storage, "b")
    assert ids_in(folder.reopen().namespace, "plain") == ["b"]
