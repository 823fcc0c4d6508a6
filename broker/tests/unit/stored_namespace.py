"""A namespace with every kind of entity, the folder that it is stored in, and operations that change its state."""

import datetime as dt
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from broker.tests.unit.namespaces import START, Taker, take_all
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.event import read_event
from busway_broker.core.hub import Hub, Partition
from busway_broker.core.incoming import IncomingMessages
from busway_broker.core.message import StoredMessage
from busway_broker.core.namespace import Namespace
from busway_broker.core.properties import why
from busway_broker.core.rule_book import RuleDefinition
from busway_broker.core.session_store import SessionStore
from busway_broker.core.times import milliseconds
from busway_broker.storage import entities
from busway_broker.storage.database import FILE_NAME
from busway_broker.storage.namespace_storage import NamespaceStorage
from shared.amqp.values import long, timestamp
from shared.clock import ManualClock
from shared.rules import CorrelationFilter, Rule, parse_action, parse_filter
from tests.messages import delivered

WINDOW = 600_000
RULE = Rule("marked", parse_filter("priority > 1 OR priority IS NULL"), parse_action("SET marked = 'yes'"))
CONFIG = NamespaceConfig(
    name="west",
    queues=(
        QueueConfig(name="Plain", max_delivery_count=2, dead_lettering_on_message_expiration=True),
        QueueConfig(name="sessions", requires_session=True),
        QueueConfig(name="unique", requires_duplicate_detection=True),
        QueueConfig(name="forward", forward_to="Plain"),
        QueueConfig(name="split", enable_partitioning=True),
    ),
    topics=(
        TopicConfig(
            name="topic",
            subscriptions=(SubscriptionConfig(name="all"), SubscriptionConfig(name="marked", rules=(RULE,))),
        ),
    ),
    hubs=(HubConfig(name="hub", partition_count=2, message_retention=dt.timedelta(hours=1)),),
)


class StorageFolder:
    """Opens the storage of one folder as a broker does at its start, and copies of it as after a kill."""

    def __init__(self, parent: Path) -> None:
        self.clock = ManualClock(START)
        self.path = parent / "west"
        self._parent = parent
        self._numbers = itertools.count()
        self._opened = ExitStack()

    @classmethod
    @contextmanager
    def in_use(cls, parent: Path) -> Iterator["StorageFolder"]:
        folder = cls(parent)
        with folder._opened:
            yield folder

    @property
    def database(self) -> Path:
        return self.path / FILE_NAME

    @property
    def log(self) -> Path:
        return self.path / f"{FILE_NAME}-wal"

    def open(self, config: NamespaceConfig = CONFIG) -> NamespaceStorage:
        return self._open(self.path, config)

    def reopen(self, config: NamespaceConfig = CONFIG) -> NamespaceStorage:
        """Open a copy of the files as they are now: what the next broker finds if this one is killed."""
        copy = self._parent / f"copy-{next(self._numbers)}"
        shutil.copytree(self.path, copy)
        return self._open(copy, config)

    def _open(self, path: Path, config: NamespaceConfig) -> NamespaceStorage:
        storage = NamespaceStorage(path, config, self.clock, is_synced=False)
        self._opened.callback(storage.close)
        return storage


def encoded(message_id: str, *, scheduled: int | None = None, **options: Any) -> bytes:
    """Return a message as a sender encodes it; *options* are those of `delivered`."""
    annotated = {} if scheduled is None else {"x-opt-scheduled-enqueue-time": timestamp(scheduled)}
    return delivered(None, message_id=message_id, annotated=annotated, **options)


def publish(storage: NamespaceStorage, *message_ids: str, queue: str = "plain") -> None:
    for message_id in message_ids:
        storage.namespace.queue(queue).publish(read_content(encoded(message_id)))
    storage.commit()


def _fields(stored: StoredMessage) -> tuple[object, ...]:
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


def picture(namespace: Namespace) -> dict[str, object]:
    """Return everything that must survive the process, as values that can be compared."""
    now = milliseconds(namespace.clock)
    found: dict[str, object] = {}
    for key, entity in entities.entities_of(namespace):
        found[key] = entities.record_of(entity, None)
        for place in entity.partitions if isinstance(entity, Hub) else entity.parts:
            if isinstance(place, Partition):
                first = place.begin_sequence_number  # which drops the events whose time is over
                events = [(one.sequence_number, one.offset, one.enqueued_time, one.encode()) for one in place.events]
                found[place.path] = first, place.next_sequence_number, events
                continue
            messages = [_fields(each) for each in place.peek(0)]
            # Ids that have left the window are forgotten later.
            ids = place.history.items() if isinstance(place, IncomingMessages) else ()
            remembered = [(one, at) for one, at in ids if at > now - WINDOW]
            states = sorted(place.session_states) if isinstance(place, SessionStore) else []
            found[place.path] = [*place.numbers.last], place.size, messages, remembered, states
    return found


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


def operate(namespace: Namespace, clock: ManualClock, operation: str, argument: int) -> None:  # noqa: C901, PLR0912 - one case for each operation
    """Do something to a namespace that changes its state."""
    now = int(clock.now().timestamp() * 1000)
    plain = namespace.queue("plain").backlog.store
    match operation:
        case "send":
            queue = ("plain", "unique", "forward", "split")[argument % 4]
            namespace.queue(queue).publish(read_content(encoded(f"id-{argument % 5}")))
        case "schedule":
            content = read_content(encoded(f"later-{argument}", scheduled=now + 1000 * argument))
            number = (namespace.topic("topic") if argument % 2 else namespace.queue("plain")).incoming.schedule(content)
            if argument % 3 == 0 and argument % 2:
                namespace.topic("topic").incoming.cancel([number])
        case "expire":
            namespace.queue("plain").publish(read_content(encoded("short", time_to_live=1000 * argument or 1)))
        case "topic":
            namespace.topic("topic").publish(read_content(encoded(f"t-{argument}")))
        case "hub":
            namespace.hub("hub").partitions[argument % 2].append([read_event(encoded(f"e-{argument}"))] * 2)
        case "take" | "settle":
            tokens = take_all(namespace)
            if operation == "settle":
                settle: list[Callable[[bytes], None]] = [
                    plain.complete,
                    plain.abandon,
                    plain.defer,
                    lambda token: plain.abandon(token, {"attempt": long(argument)}),
                    lambda token: plain.dead_letter(token, why("reason", "because")),
                ]
                for position, token in enumerate(tokens):
                    settle[(position + argument) % len(settle)](token)
        case "session":
            content = read_content(encoded("s", session_id=f"session-{argument % 3}"))
            namespace.queue("sessions").publish(content)
        case "state":
            store = namespace.queue("sessions").backlog.store
            taker = Taker(store)
            assert isinstance(store, SessionStore)
            session = store.accept(f"session-{argument % 3}", taker)
            store.set_session_state(session.session_id, None if argument % 4 == 0 else b"state %d" % argument)
            store.release_session(session, taker)
            store.end_handover(session.session_id)
        case "time":
            clock.advance(600 * argument)
            namespace.advance()
        case "rule":
            book = namespace.subscription("topic", "all").rule_book
            rule = Rule(f"r-{argument}", CorrelationFilter(subject="x", properties={"n": long(argument)}))
            if all(definition.rule.name != rule.name for definition in book.definitions):
                book.add(RuleDefinition.of(rule, 0))
            else:
                book.remove(rule.name)
