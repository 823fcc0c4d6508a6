"""What is kept in a folder is there again, whatever happened to it and to the process."""

import datetime as dt
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from local.broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from local.broker.core.administration import Administration
from local.broker.core.content import read_content
from local.broker.core.event import read_event
from local.broker.core.rule_book import RuleDefinition
from local.broker.core.store import milliseconds
from local.broker.storage import entities
from local.broker.storage.log import StorageError
from local.broker.storage.store import NamespaceStorage, folder_name
from shared.amqp.codec import encode
from shared.amqp.values import NULL, described, list_, long, map_, string, symbol, timestamp, uint, ulong
from shared.clock import ManualClock
from shared.rules import CorrelationFilter, Rule, parse_action, parse_filter

WINDOW = 600_000
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
RULE = Rule("marked", parse_filter("priority > 1 OR priority IS NULL"), parse_action("SET marked = 'yes'"))
CONFIG = NamespaceConfig(
    name="west",
    queues=(
        QueueConfig(name="Plain", max_delivery_count=2, dead_lettering_on_message_expiration=True),
        QueueConfig(name="sessions", requires_session=True),
        QueueConfig(name="unique", requires_duplicate_detection=True),
        QueueConfig(name="forward", forward_to="Plain"),
    ),
    topics=(
        TopicConfig(
            name="topic",
            subscriptions=(SubscriptionConfig(name="all"), SubscriptionConfig(name="marked", rules=(RULE,))),
        ),
    ),
    hubs=(HubConfig(name="hub", partition_count=2, message_retention=dt.timedelta(hours=1)),),
)


def message(text, *, session_id=None, time_to_live=None, scheduled=None):
    sections = []
    if time_to_live is not None:
        sections.append(described(ulong(0x70), list_([NULL, NULL, uint(time_to_live)])))
    if scheduled is not None:
        at = map_([(symbol("x-opt-scheduled-enqueue-time"), timestamp(scheduled))])
        sections.append(described(ulong(0x72), at))
    properties = [string(text), *[NULL] * 9, NULL if session_id is None else string(session_id)]
    sections += [described(ulong(0x73), list_(properties)), described(ulong(0x77), string(text))]
    return b"".join(map(encode, sections))


class Taker:
    """A consumer that takes what comes."""

    is_destructive = False

    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.session = None

    def can_take(self) -> bool:
        return True

    def take(self, tag, _) -> None:
        self.tokens.append(tag)

    def session_granted(self, session) -> None:
        self.session = session

    def session_lost(self, _) -> None:
        self.session = None


def fields(stored):
    content = stored.content
    return (
        stored.sequence_number,
        stored.enqueue_sequence_number,
        stored.enqueued_time,
        stored.time_to_live,
        stored.expires_at,
        stored.delivery_count,
        stored.state,
        *(getattr(content, name) for name in content.__slots__),
    )


def picture(namespace):
    """Return everything that must outlive the process, as values that can be compared."""
    now = milliseconds(namespace.clock)
    stores = [each.backlog for each in namespace.queues.values()]
    stores += [each.backlog for topic in namespace.topics.values() for each in topic.subscriptions.values()]
    inboxes = [*namespace.queues.values(), *namespace.topics.values()]
    return {
        "messages": {
            store.path: (store.last_sequence_number, store.size, [fields(each) for each in store.messages.values()])
            for backlog in stores
            for store in backlog.stores
        },
        "states": {
            store.path: sorted(store.session_states)
            for backlog in stores
            for store in backlog.stores
            if hasattr(store, "session_states")
        },
        "inboxes": {
            each.path: (
                [fields(one) for one in each.incoming.scheduled.values()],
                # Ids that have left the window are forgotten by and by.
                [(one, at) for one, at in each.incoming.history.items() if at > now - WINDOW],
            )
            for each in inboxes
        },
        "topics": {each.path: each.last_sequence_number for each in namespace.topics.values()},
        "partitions": {
            partition.path: (
                partition.begin_sequence_number,
                partition.next_sequence_number,
                [(one.sequence_number, one.offset, one.enqueued_time, one.encode()) for one in partition.events],
            )
            for hub in namespace.hubs.values()
            for partition in hub.partitions
        },
        "entities": {key: entities.record_of(entity, None) for key, entity in sorted(entities.entities_of(namespace))},
    }


@pytest.fixture
def clock():
    return ManualClock(START)


@pytest.fixture
def open_storage(tmp_path: Path, clock):
    """Open the storage in a folder, as a broker does at its start; all are closed at the end."""
    opened = []

    def open_one(folder=tmp_path / "west", config=CONFIG, **options):
        storage = NamespaceStorage(folder, config, clock, is_synced=False, **options)
        opened.append(storage)
        return storage

    yield open_one
    for storage in opened:
        storage.close()


@pytest.fixture
def reopened(tmp_path: Path, open_storage):
    """Return the storage as a broker finds it whose predecessor was killed at this moment."""
    number = iter(range(100))

    def reopen(config=CONFIG):
        folder = tmp_path / f"copy-{next(number)}"
        shutil.copytree(tmp_path / "west", folder)
        return open_storage(folder, config)

    return reopen


OPERATIONS = [
    "send",
    "send",
    "schedule",
    "expire",
    "topic",
    "hub",
    "take",
    "settle",
    "session",
    "state",
    "time",
    "rule",
]


def operate(namespace, clock, operation, argument) -> None:  # noqa: C901, PLR0912 - one case for each operation
    """Do something to a namespace that changes its state."""
    now = int(clock.now().timestamp() * 1000)
    plain = namespace.queue("plain").backlog.store
    match operation:
        case "send":
            queue = ("plain", "unique", "forward")[argument % 3]
            namespace.queue(queue).publish(read_content(message(f"id-{argument % 5}")))
        case "schedule":
            content = read_content(message(f"later-{argument}", scheduled=now + 1000 * argument))
            number = (namespace.topic("topic") if argument % 2 else namespace.queue("plain")).incoming.schedule(content)
            if argument % 3 == 0 and argument % 2:
                namespace.topic("topic").incoming.cancel([number])
        case "expire":
            namespace.queue("plain").publish(read_content(message("short", time_to_live=1000 * argument)))
        case "topic":
            namespace.topic("topic").publish(read_content(message(f"t-{argument}")))
        case "hub":
            namespace.hub("hub").partitions[argument % 2].append([read_event(message(f"e-{argument}"))] * 2)
        case "take" | "settle":
            taker = Taker()
            plain.join(taker)
            plain.dispatch()
            plain.leave(taker)
            if operation == "settle":
                for position, token in enumerate(taker.tokens):
                    settle = (
                        plain.complete,
                        plain.abandon,
                        plain.defer,
                        lambda token: plain.abandon(token, {"attempt": long(argument)}),
                        lambda token: plain.dead_letter(token, "reason", "because"),
                    )
                    settle[(position + argument) % len(settle)](token)
        case "session":
            content = read_content(message("s", session_id=f"session-{argument % 3}"))
            namespace.queue("sessions").publish(content)
        case "state":
            store, taker = namespace.queue("sessions").backlog.store, Taker()
            session = store.accept(f"session-{argument % 3}", taker)
            store.set_session_state(session.session_id, None if argument % 4 == 0 else b"state %d" % argument)
            store.release_session(session, taker)
        case "time":
            clock.advance(600 * argument)
            namespace.advance()
        case "rule":
            book = namespace.subscription("topic", "all").rule_book
            rule = Rule(f"r-{argument}", CorrelationFilter(subject="x", properties={"n": long(argument)}))
            if all(each.rule.name != rule.name for each in book.definitions):
                book.add(RuleDefinition.of(rule, 0))
            else:
                book.remove(rule.name)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 20)), max_size=25), every=st.integers(1, 4))
def test_everything_is_there_after_any_operations(tmp_path_factory: pytest.TempPathFactory, steps, every) -> None:
    clock = ManualClock(START)
    folder = tmp_path_factory.mktemp("data")
    with NamespaceStorage(folder / "west", CONFIG, clock, is_synced=False, compact_at=20_000) as storage:
        for number, (operation, argument) in enumerate(steps):
            operate(storage.namespace, clock, operation, argument)
            if number % every == 0:
                storage.commit()
        storage.commit()
        expected = picture(storage.namespace)
        shutil.copytree(folder / "west", folder / "copy")
    with NamespaceStorage(folder / "copy", CONFIG, clock, is_synced=False) as kept:
        assert picture(kept.namespace) == expected
        # What it does from now on is the same as well: deadlines, order, numbers.
        for operation, argument in [("time", 2), ("send", 1), ("settle", 0), ("time", 7), ("topic", 1), ("hub", 1)]:
            operate(kept.namespace, clock, operation, argument)
        kept.namespace.queue("plain").backlog.store.dispatch()


def publish(storage, *texts, queue: str = "plain") -> None:
    for text in texts:
        storage.namespace.queue(queue).publish(read_content(message(text)))
    storage.commit()


def texts_in(storage, path: str = "plain"):
    return [each.content.message_id[2:].decode() for each in storage.namespace.store(path).messages.values()]


def log_of(folder):
    [log] = folder.glob("*.log")
    return log


def test_copies_in_subscriptions_share_their_bytes_on_the_disk_and_in_memory(
    tmp_path: Path, open_storage, reopened
) -> None:
    subscriptions = tuple(SubscriptionConfig(name=f"s-{number}") for number in range(20))
    config = replace(CONFIG, topics=(TopicConfig(name="topic", subscriptions=subscriptions),))
    storage = open_storage(config=config)
    before = log_of(tmp_path / "west").stat().st_size
    storage.namespace.topic("topic").publish(read_content(message("x" * 100)))
    storage.commit()
    assert log_of(tmp_path / "west").stat().st_size - before < 3000
    kept = reopened(config).namespace.topic("topic").subscriptions.values()
    assert len({id(each.backlog.store.messages[1].content) for each in kept}) == 1
    assert log_of(tmp_path / "copy-0").stat().st_size < before + 3000


def test_a_locked_message_is_ready_again_without_counting(open_storage, reopened) -> None:
    storage = open_storage()
    publish(storage, "a")
    operate(storage.namespace, ManualClock(START), "take", 0)
    storage.commit()
    kept = reopened().namespace.store("plain")
    taker = Taker()
    kept.join(taker)
    kept.dispatch()
    assert len(taker.tokens) == 1
    assert kept.messages[1].delivery_count == 0


def test_a_change_that_was_cut_off_is_left_out_and_reported(
    tmp_path: Path, open_storage, reopened, caplog: pytest.LogCaptureFixture
) -> None:
    storage = open_storage()
    publish(storage, "a")
    log = log_of(tmp_path / "west")
    whole = log.stat().st_size
    publish(storage, "b", "c")
    data = log.read_bytes()
    for length in {whole + 1, whole + 11, whole + 12, (whole + len(data)) // 2, len(data) - 1}:
        log.write_bytes(data[:length])
        caplog.clear()
        assert texts_in(reopened()) == ["a"]
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert f"{length - whole} bytes of a change that was not finished" in caplog.text
    log.write_bytes(data)
    caplog.clear()
    assert texts_in(reopened()) == ["a", "b", "c"]
    assert not caplog.records


def test_damage_before_the_end_stops_the_start(tmp_path: Path, open_storage, reopened) -> None:
    storage = open_storage()
    publish(storage, "a")
    publish(storage, "b")
    log = log_of(tmp_path / "west")
    data = bytearray(log.read_bytes())
    data[data.index(b"\xa1\x01a") + 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(StorageError, match="damaged between bytes"):
        reopened()


def test_another_format_stops_the_start(tmp_path: Path, open_storage, reopened) -> None:
    open_storage()
    log = log_of(tmp_path / "west")
    log.write_bytes(b"busway broker data 9\n")
    with pytest.raises(StorageError, match="starts with 'busway broker data 9'"):
        reopened()


def test_a_folder_belongs_to_one_broker_at_a_time(open_storage) -> None:
    open_storage()
    with pytest.raises(StorageError, match="another broker uses it"):
        open_storage()


def test_the_log_is_rewritten_when_most_of_it_is_history(tmp_path: Path, open_storage, reopened) -> None:
    storage = open_storage(compact_at=50_000)
    for number in range(200):
        publish(storage, f"{number:0100}")
        operate(storage.namespace, ManualClock(START), "take", 0)
        store = storage.namespace.store("plain")
        for token in list(store._locks):
            store.complete(token)
    publish(storage, "left")
    assert log_of(tmp_path / "west").stat().st_size < 60_000
    kept = reopened()
    assert texts_in(kept) == ["left"]
    assert kept.namespace.store("plain").last_sequence_number == 201


def test_a_rewrite_that_was_cut_off_leaves_the_log_before_it(tmp_path: Path, open_storage, reopened) -> None:
    storage = open_storage()
    publish(storage, "a")
    (tmp_path / "west" / "00000002.new").write_bytes(log_of(tmp_path / "west").read_bytes()[:30])
    assert texts_in(reopened()) == ["a"]


def test_reset_forgets_everything(open_storage, reopened) -> None:
    storage = open_storage()
    publish(storage, "a")
    before = storage.namespace
    storage.reset()
    before.queue("plain").publish(read_content(message("late")))
    storage.commit()
    publish(storage, "b")
    assert texts_in(reopened()) == ["b"]


# Entities


def test_entities_made_changed_and_deleted_while_it_ran_stay_so(open_storage, reopened) -> None:
    storage = open_storage()
    administration = Administration(storage.namespace)
    administration.create_queue(QueueConfig(name="new", user_metadata="mine"))
    plain = storage.namespace.queue("plain").config
    administration.update_queue(replace(plain, lock_duration=dt.timedelta(seconds=7)))
    administration.delete("unique")
    administration.delete_subscription("topic", "all")
    administration.create_subscription("topic", SubscriptionConfig(name="added", rules=(RULE,)))
    publish(storage, "a", queue="new")
    for _ in range(2):
        kept = reopened()
        assert kept.namespace.queue("new").config.user_metadata == "mine"
        assert texts_in(kept, "new") == ["a"]
        assert kept.namespace.queue("plain").config.lock_duration == dt.timedelta(seconds=7)
        assert "unique" not in kept.namespace.queues
        assert set(kept.namespace.topic("topic").subscriptions) == {"marked", "added"}


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_entity_made_anew_under_the_same_name_has_its_own_messages(
    open_storage, reopened, is_committed: bool
) -> None:
    storage = open_storage()
    publish(storage, "old")
    administration = Administration(storage.namespace)
    administration.delete("plain")
    if is_committed:
        storage.commit()
    administration.create_queue(QueueConfig(name="plain"))
    administration.delete_subscription("topic", "all")
    administration.create_subscription("topic", SubscriptionConfig(name="all"))
    storage.namespace.topic("topic").publish(read_content(message("news")))
    publish(storage, "new")
    kept = reopened()
    assert texts_in(kept) == ["new"]
    assert texts_in(kept, "topic/subscriptions/all") == ["news"]
    assert kept.namespace.store("plain").last_sequence_number == 1


def test_what_the_files_say_anew_holds_and_messages_stay(open_storage, reopened) -> None:
    storage = open_storage()
    publish(storage, "a")
    Administration(storage.namespace).delete("unique")
    storage.commit()
    changed = [
        replace(each, max_delivery_count=9) if each.name in {"Plain", "unique"} else each for each in CONFIG.queues
    ]
    kept = reopened(replace(CONFIG, queues=(*changed, QueueConfig(name="more"))))
    assert kept.namespace.queue("plain").config.max_delivery_count == 9
    assert kept.namespace.queue("unique").config.max_delivery_count == 9
    assert texts_in(kept) == ["a"]
    assert texts_in(kept, "more") == []


def test_what_the_files_name_no_more_is_kept_and_reported(
    open_storage, reopened, caplog: pytest.LogCaptureFixture
) -> None:
    publish(open_storage(), "a")
    kept = reopened(replace(CONFIG, queues=CONFIG.queues[1:3], topics=()))
    assert texts_in(kept) == ["a"]
    assert "west: Plain is not in the configuration any more; it is kept" in caplog.text


def test_sessions_cannot_be_required_of_messages_that_have_none(open_storage, reopened) -> None:
    publish(open_storage(), "a")
    queues = (replace(CONFIG.queues[0], requires_session=True), *CONFIG.queues[1:])
    with pytest.raises(StorageError, match="Plain: requires_session is True, expected False"):
        reopened(replace(CONFIG, queues=queues))


@pytest.mark.parametrize(("name", "folder"), [("west", "west"), ("..", "%2E%2E"), ("a/b", "a%2Fb")])
def test_folders_are_named_after_namespaces_whatever_their_names(name: str, folder: str) -> None:
    assert folder_name(name) == folder
