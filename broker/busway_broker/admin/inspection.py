"""
The JSON API for tests, without HTTP: inspects and changes a namespace as plain data.

Under `/$busway`:

- GET /: the namespace's name, its entities with their status and counts
- GET /counts: the counts of all queues and subscriptions by path
- GET /messages?path=orders&limit=100&from=1: the messages of an entity or sub-queue from a sequence number on, without
  their bodies; with body=true, also what their senders wrote
- POST /messages?path=orders: sends a message: `body` and, if wanted, `message_id`, `application_properties` and others
- GET /events?hub=telemetry&partition=0&from=0&limit=100, POST /events?hub=telemetry: the same for an event hub
- POST /hubs: creates an event hub: `name` and, if wanted, `partition_count`, `consumer_groups`, `retention_hours`
- DELETE /hubs?hub=telemetry: deletes an event hub with its events
- GET /connections: the open connections with their links
- POST /reset: closes all connections, and starts again with the configured entities, all empty
- POST /upgrade: ends the locks on sessions and closes the connections, as an upgrade of the service does
- POST /failover: makes another region of a namespace of hubs the primary one, which cuts the connections
- GET /clock: the time, and whether it advances by itself; POST /clock: advances it by the seconds in `advance`
- GET /faults, POST /faults, DELETE /faults: lists the faults; adds one, in the form of `Fault.read`; removes all
"""

import itertools
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from busway_broker import errors
from busway_broker.admin.messages import encode_message, event_of, message_of
from busway_broker.config import MAX_PARTITIONS, HubConfig, OnDemand
from busway_broker.core.administration import Administration
from busway_broker.core.content import read_content
from busway_broker.core.entities import Queue, Topic
from busway_broker.core.event import read_event
from busway_broker.core.namespace import Namespace
from busway_broker.core.on_demand import create_hub, create_missing
from busway_broker.errors import Refusal
from busway_broker.faults import Fault
from busway_broker.server import BrokerServer
from shared.clock import ManualClock

PREFIX = "$busway"
_DEFAULT_LIMIT = "100"
_ACTIONS = ("reset", "failover", "clock")
_MAX_RETENTION_HOURS = 2160  # 90 days, in the Premium tier
_MOST_SECONDS = 366 * 24 * 3600

type Plain = object


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a namespace, with the server that it belongs to."""

    namespace: Namespace
    server: BrokerServer
    query: Mapping[str, str]
    body: Plain
    advance_clock: Callable[[float], None]

    def object(self, expected: str) -> dict[str, Any]:
        """Return the body, which must be a JSON object."""
        if not isinstance(self.body, dict):
            raise Refusal(errors.ARGUMENT_ERROR, f"the body is not a JSON object, expected {expected}")
        return self.body


def answer(method: str, path: str, call: Call) -> tuple[int, Plain]:
    """
    Return the status and data of the answer to a request.

    Raises: Refusal, and ConfigError for an invalid fault.
    """
    carry_out = _CALLS.get((method, path))
    if carry_out is None:
        methods = ", ".join(sorted(known for known, name in _CALLS if name == path))
        if methods:
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"{method} /{PREFIX}/{path}: expected {methods}"}
        raise Refusal(errors.NOT_FOUND, f"{method} /{PREFIX}/{path}: unknown request")
    data = carry_out(call)
    status = HTTPStatus.CREATED if method == "POST" and path not in _ACTIONS else HTTPStatus.OK
    return status, {} if data is None else data


def _counts(call: Call) -> Plain:
    return {path: asdict(counts) for path, counts in call.namespace.counts().items()}


def _messages(call: Call) -> Plain:
    query = call.query
    path, limit, start = query.get("path", ""), query.get("limit", _DEFAULT_LIMIT), query.get("from", "0")
    return messages(call.namespace, path, limit, start=start, has_body=query.get("body") == "true")


def _send(call: Call) -> None:
    content = read_content(encode_message(call.object("a message")))
    path = call.query.get("path", "")
    if call.namespace.config.on_demand is OnDemand.QUEUES:
        create_missing(call.namespace, path, requires_session=False)
    call.namespace.target(path).publish(content)


def _events(call: Call) -> Plain:
    query = call.query
    limit, start = query.get("limit", _DEFAULT_LIMIT), query.get("from", "0")
    return events(call.namespace, query.get("hub", ""), query.get("partition", "0"), limit, start=start)


def _append(call: Call) -> None:
    event = read_event(encode_message(call.object("an event")))
    create_hub(call.namespace, call.query.get("hub", ""))
    call.namespace.hub(call.query.get("hub", "")).partition_for(event.partition_key).append([event])


def _create_hub(call: Call) -> None:
    body = call.object("a hub")
    expected = {"name": str, "partition_count": int, "consumer_groups": list, "retention_hours": int}
    for name, value in body.items():
        if not isinstance(value, expected.get(name, ())) or isinstance(value, bool):
            raise Refusal(errors.ARGUMENT_ERROR, f"{name}: unknown, or not of its type; expected {', '.join(expected)}")
    default = HubConfig(name=body.get("name", ""))
    partition_count, retention = body.get("partition_count", default.partition_count), body.get("retention_hours")
    if not 1 <= partition_count <= MAX_PARTITIONS:
        raise Refusal(errors.ARGUMENT_ERROR, f"partition_count is {partition_count}, expected 1 to {MAX_PARTITIONS}")
    if retention is not None and not 1 <= retention <= _MAX_RETENTION_HOURS:
        raise Refusal(errors.ARGUMENT_ERROR, f"retention_hours is {retention}, expected 1 to {_MAX_RETENTION_HOURS}")
    groups = body.get("consumer_groups", [])
    if not all(isinstance(group, str) for group in groups):
        raise Refusal(errors.ARGUMENT_ERROR, "consumer_groups: expected a list of names")
    config = replace(
        default,
        partition_count=partition_count,
        consumer_groups=tuple(groups),
        message_retention=default.message_retention if retention is None else timedelta(hours=retention),
    )
    Administration(call.namespace).create_hub(config)


def _clock(call: Call) -> Plain:
    clock = call.namespace.clock
    return {"now": clock.now().isoformat(), "advances_by_itself": not isinstance(clock, ManualClock)}


def _advance(call: Call) -> Plain:
    body = call.object('seconds such as {"advance": 60}')
    seconds = body.get("advance")
    if body.keys() != {"advance"} or isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise Refusal(errors.ARGUMENT_ERROR, 'expected seconds alone, such as {"advance": 60}')
    if not 0 < seconds <= _MOST_SECONDS:
        raise Refusal(
            errors.ARGUMENT_ERROR, f"advance is {seconds}, expected more than 0, up to {_MOST_SECONDS} seconds"
        )
    if not isinstance(call.namespace.clock, ManualClock):
        raise Refusal(errors.ARGUMENT_ERROR, "the clock advances by itself, start the broker with --manual-clock")
    call.advance_clock(seconds)
    return _clock(call)


def _add_fault(call: Call) -> Plain:
    call.namespace.faults.add(Fault.read(call.object("a fault")))
    return call.namespace.faults.plain()


def _clear_faults(call: Call) -> Plain:
    call.namespace.faults.clear()
    return []


def _fail_over(call: Call) -> Plain:
    """Promote the secondary namespace of a pair, or another region of a geo-replicated namespace."""
    alias = call.server.promote(call.namespace.name)
    return {"region": call.server.fail_over(call.namespace.name)} if alias is None else {"alias": alias}


_CALLS: Mapping[tuple[str, str], Callable[[Call], Plain | None]] = {
    ("GET", ""): lambda call: describe(call.namespace),
    ("GET", "counts"): _counts,
    ("GET", "messages"): _messages,
    ("POST", "messages"): _send,
    ("GET", "events"): _events,
    ("POST", "events"): _append,
    ("POST", "hubs"): _create_hub,
    ("DELETE", "hubs"): lambda call: Administration(call.namespace).delete_hub(call.query.get("hub", "")),
    ("GET", "connections"): lambda call: call.server.connections(call.namespace.name),
    ("POST", "reset"): lambda call: call.server.reset(),
    ("POST", "upgrade"): lambda call: call.server.upgrade(call.namespace.name),
    ("POST", "failover"): _fail_over,
    ("GET", "clock"): _clock,
    ("POST", "clock"): _advance,
    ("GET", "faults"): lambda call: call.namespace.faults.plain(),
    ("POST", "faults"): _add_fault,
    ("DELETE", "faults"): _clear_faults,
}


def describe(namespace: Namespace) -> Plain:
    """Return the entities of a namespace."""
    counts = {path: asdict(count) for path, count in namespace.counts().items()}
    return {
        "name": namespace.name,
        "queues": {
            queue.path: {"status": queue.config.status, "size": queue.size, "counts": counts[queue.path]}
            for queue in namespace.queues.values()
        },
        "topics": {
            topic.path: {
                "status": topic.config.status,
                "size": topic.size,
                "subscriptions": {
                    subscription.name: {
                        "status": subscription.config.status,
                        "rules": [definition.rule.name for definition in subscription.rule_book.definitions],
                        "counts": counts[subscription.path],
                    }
                    for subscription in topic.subscriptions.values()
                },
            }
            for topic in namespace.topics.values()
        },
        "hubs": {
            hub.path: {
                "partitions": [
                    {
                        "partition_id": partition.partition_id,
                        "begin_sequence_number": partition.begin_sequence_number,
                        "next_sequence_number": partition.next_sequence_number,
                    }
                    for partition in hub.partitions
                ]
            }
            for hub in namespace.hubs.values()
        },
    }


def messages(
    namespace: Namespace, path: str, limit: str, *, start: str = "0", has_body: bool = False
) -> list[dict[str, object]]:
    """Return the first messages at a path from a sequence number on; a queue or topic includes its scheduled ones."""
    entity = namespace.entity_of(path)
    is_whole = path.strip("/").lower() == entity.path.lower()
    peek = entity.peek if isinstance(entity, Queue | Topic) and is_whole else namespace.store(path).peek
    found = itertools.islice(peek(_number("from", start)), _number("limit", limit))
    return [message_of(message, has_body=has_body) for message in found]


def events(namespace: Namespace, hub: str, partition: str, limit: str, *, start: str = "0") -> list[dict[str, object]]:
    """Return the first events of a partition from a sequence number on."""
    found = namespace.hub(hub).partition(partition)
    first = max(_number("from", start) - found.begin_sequence_number, 0)
    return [event_of(event, namespace.region) for event in found.events[first : first + _number("limit", limit)]]


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < len(str(sys.maxsize))):
        raise Refusal(errors.ARGUMENT_ERROR, f"{name} is '{text}', expected a whole number of 18 digits at most")
    return int(text)
