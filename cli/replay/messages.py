"""The messages to replay, as the task's source delivered them: from its hub, or copies of what the journal has."""

import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cli.reconcile import journal_at
from cli.repair.copies import Contents, contents_of, dead_letters_of
from cli.repair.manifest import Missing
from cli.repair.replay import as_it_entered
from cli.replay.plan import Plan
from cli.trace.run import on_this_machine
from local.host.event_hubs_connection import EventHub
from shared.azure.backlogs import HubSite
from shared.azure.connections import NAMESPACE_SUFFIX, event_hub_client
from shared.azure.receivers.connection import Connection
from shared.clock import SystemClock
from shared.config.files import Configuration
from shared.config.models import DEFAULT_CONSUMER_GROUP, TaskFile
from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.journal.search import files_in, records_in
from shared.message.arrival import Arrival, Origin
from shared.message.heartbeat import heartbeat_in
from shared.message.message import Message
from shared.message.waiting import PartitionEnd

_EVENTS_PER_READ = 500
_QUIET_SECONDS = 10.0
# The answer to a reader without an epoch, if another one of its consumer group has one.
_STOLEN = "amqp:link:stolen"
_BEFORE_START = "-1"
_MOST_HOURS = 24 * 90


class Replayed(NamedTuple):
    """A message to replay, encoded as its source delivered it."""

    key: str
    content: bytes
    partition: str | None
    arrival: Arrival


class NotFound(NamedTuple):
    """A message that the journal has, and of which there is no copy."""

    key: str


class Unread(NamedTuple):
    """A part of the journal that cannot be read, and why."""

    problem: str


type Page = list[Replayed | NotFound | Unread]


def key_of(arrival: Arrival) -> str:
    """Return what identifies a message at its source, also after the entity was deleted and created."""
    return f"{arrival.origin.partition or ''}/{arrival.sequence_number}/{arrival.enqueued_time}"


async def messages(
    plan: Plan, task: TaskFile, configuration: Configuration, settings: Mapping[str, str], folder: Path
) -> AsyncGenerator[Page]:
    """Yield the messages of *plan* in order, some at a time, each list from one partition; raises BuswayError."""
    found = (
        _events(plan, task, configuration, settings)
        if task.source.hub
        else _copies(plan, task, configuration, settings, folder)
    )
    async with contextlib.aclosing(found) as pages:
        async for page in pages:
            yield page


async def _events(
    plan: Plan, task: TaskFile, configuration: Configuration, settings: Mapping[str, str]
) -> AsyncGenerator[Page]:
    source, name = task.source, task.source.hub or ""
    setting = configuration.connections[source.connection].key
    site = HubSite(configuration.site(source.connection), partial(_open_client, setting, settings))
    try:
        ends = await site.partitions(name)
    finally:
        await site.close()
    partitions = plan.partitions or [str(each) for each in source.partitions or sorted(ends, key=int)]
    unknown = [each for each in partitions if each not in ends]
    if unknown:
        raise ConfigError([Problem(f"--partition {unknown[0]}", "unknown", f"expected {', '.join(sorted(ends))}")])
    if len(partitions) > 1 and (plan.first.number is not None or plan.last.number is not None):
        text = "is a position in one partition, and the hub has several"
        raise ConfigError([Problem("a sequence number", text, "name it with --partition, or use times")])
    connection = Connection(setting, settings.get(setting), settings.get(setting + NAMESPACE_SUFFIX))
    hub = EventHub(connection, name, plan.consumer_group or source.consumer_group or DEFAULT_CONSUMER_GROUP)
    try:
        for partition in partitions:
            if not ends[partition].is_empty:
                place = Origin(configuration.site(source.connection), name, partition)
                async for page in _of_partition(plan, hub, place, ends[partition]):
                    yield page
    except TargetUnavailable as error:
        if _STOLEN not in str(error):
            raise
        hint = "the app reads with this consumer group, name another one with --consumer-group"
        raise TargetRefused(f"{error}: {hint}") from error
    finally:
        await hub.close()


async def _of_partition(plan: Plan, hub: EventHub, place: Origin, end: PartitionEnd) -> AsyncGenerator[Page]:
    if not plan.first.is_before(end.last, end.last_enqueued):
        return
    start: str | int | datetime = _BEFORE_START
    if plan.first.number:
        start = plan.first.number - 1
    elif plan.first.time is not None:
        start = datetime.fromtimestamp(plan.first.time / 1000, UTC) - timedelta(seconds=1)
    opened: Any = await hub.open(str(place.partition), start, 0)
    try:
        while events := await opened.link.receive(_EVENTS_PER_READ, _QUIET_SECONDS):
            page: Page = []
            number: int | None = None
            for each in events:
                message = Message.received(each.payload, place)
                arrival = message.arrival
                number, time = arrival.sequence_number, arrival.enqueued_time
                is_between = plan.first.is_before(number, time) and plan.last.is_after(number, time)
                if is_between and heartbeat_in(message) is None:
                    page.append(Replayed(key_of(arrival), each.payload, place.partition, arrival))
            if page:
                yield page
            if number is None or number >= end.last or not plan.last.is_after(number, time):
                return
        # Nothing says why: what it still has may be anything up to its last event.
        text = f"sends no event within {_QUIET_SECONDS:.0f} s, expected those up to sequence number {end.last}"
        raise TargetUnavailable(f"{place.site}/{place.entity}/{place.partition}: {text}")
    finally:
        await opened.close()


def _open_client(setting: str, settings: Mapping[str, str], hub: str) -> Any:  # noqa: ANN401 - the SDK's client
    return event_hub_client(setting, settings, hub)


async def _copies(
    plan: Plan, task: TaskFile, configuration: Configuration, settings: Mapping[str, str], folder: Path
) -> AsyncGenerator[Page]:
    problems: dict[str, None] = {}
    received = sorted(_received(plan, task, folder, problems), key=lambda each: each.sequence_number or 0)
    yield [Unread(each) for each in problems]
    contents = [await _contents(place, task, configuration, settings) for place in _places(plan, task, configuration)]
    site = configuration.site(task.source.connection)
    for start in range(0, len(received), _EVENTS_PER_READ):
        page: Page = []
        for each in received[start : start + _EVENTS_PER_READ]:
            copy = next((found for some in contents if (found := some.alike(each)) is not None), None)
            place = Origin(site, task.source.entity)
            if copy is None:
                page.append(NotFound(f"/{each.sequence_number}/{each.enqueued_time}"))
                continue
            content = as_it_entered(copy, each._replace(has_expired=True), task, SystemClock().now())
            arrival = Message.received(content, place).arrival
            page.append(Replayed(key_of(arrival), content, None, arrival))
        yield page


def _places(plan: Plan, task: TaskFile, configuration: Configuration) -> list[tuple[str, str]]:
    """Return the entities with copies: those of `--copies`, or of the task's taps that do not drain them."""
    if plan.copies:
        places = [tuple(each.split("/", 1)) for each in plan.copies]
        for alias, *entity in places:
            connection = configuration.connections.get(alias)
            if connection is None or connection.kind != "service-bus" or not entity:
                raise ConfigError([Problem(f"--copies {alias}", "is not a queue or subscription of a connection")])
        return [(each[0], each[1]) for each in places]
    dead = dead_letters_of(task)
    peeked = [tap.source for tap in configuration.taps if tap.tap.of == task.task and tap.tap.side == "source"]
    own = [] if dead is None else [(task.source.connection, dead)]
    return [*((each.connection, each.entity) for each in peeked), *own]


async def _contents(
    place: tuple[str, str], task: TaskFile, configuration: Configuration, settings: Mapping[str, str]
) -> Contents:
    return Contents(*await contents_of(configuration, *place, settings), task)


def _received(plan: Plan, task: TaskFile, folder: Path, problems: dict[str, None]) -> Iterator[Missing]:
    """Yield what the journal says that the task received between the positions, each message once."""
    source, storage = journal_at(plan.journal, folder)
    hours = _hours(plan)
    files = [
        path
        for path in files_in(on_this_machine(source, storage, hours), hours)
        if f"task={task.task}/" in path.as_posix() and "role=source" in path.as_posix()
    ]
    seen: set[str] = set()
    for record in records_in(files, problems):
        each = _missing(record)
        if each is not None and each.key not in seen and _is_between(plan, each):
            seen.add(each.key)
            yield each


def _is_between(plan: Plan, each: Missing) -> bool:
    number, time = each.sequence_number, each.enqueued_time
    return plan.first.is_before(number, time) and plan.last.is_after(number, time)


def _hours(plan: Plan) -> Sequence[str]:
    """Return the hours of journals to read; a position that is a number does not say which."""
    now = datetime.now(UTC)
    first = now - timedelta(hours=_MOST_HOURS)
    if plan.first.time is not None:
        first = max(first, datetime.fromtimestamp(plan.first.time / 1000, UTC) - timedelta(hours=1))
    count = int((now - first) / timedelta(hours=1)) + 2
    return [f"{first + timedelta(hours=number):%Y-%m-%dT%H}" for number in range(count)]


def _missing(record: Mapping[str, Any]) -> Missing | None:
    if record.get("outcome") != "received" or record.get("observer") != "task" or record.get("src_seq") is None:
        return None
    enqueued = record.get("enqueued_time")
    return Missing(
        record["task"],
        record["src_site"],
        record["src_entity"],
        record.get("src_part"),
        record["src_seq"],
        None if enqueued is None else enqueued // 1000,
        record.get("message_id"),
        record.get("body_digest"),
        record.get("property_digest"),
        0,
    )
