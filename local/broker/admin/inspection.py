"""
The JSON API for tests, without HTTP: inspects and changes a namespace as plain data.

Under `/$busway`:

- GET /: the namespace's name, its entities with their status and counts
- GET /counts: the counts of all queues and subscriptions by path
- GET /messages?path=orders&limit=100: the messages of an entity or sub-queue, without their bodies
- POST /reset: closes all connections, and starts again with the configured entities, all empty
- GET /faults, POST /faults, DELETE /faults: lists the faults; adds one, in the form of `Fault.read`; removes all
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus

from local.broker import errors
from local.broker.core.content import Content
from local.broker.core.entities import Queue, Topic
from local.broker.core.message import StoredMessage
from local.broker.core.namespace import Namespace
from local.broker.errors import Refusal
from local.broker.faults import Fault
from shared.amqp.codec import decode, plain

PREFIX = "$busway"
_DEFAULT_LIMIT = "100"

type Plain = object


def answer(
    namespace: Namespace, method: str, path: str, query: Mapping[str, str], *, body: Plain, reset: Callable[[], None]
) -> tuple[int, Plain]:
    """
    Return the status and data of the answer to a request; *reset* resets the namespace.

    Raises: Refusal, and ConfigError for an invalid fault.
    """
    match method, path:
        case "GET", "":
            return HTTPStatus.OK, describe(namespace)
        case "GET", "counts":
            return HTTPStatus.OK, {path: asdict(counts) for path, counts in namespace.counts().items()}
        case "GET", "messages":
            return HTTPStatus.OK, messages(namespace, query.get("path", ""), query.get("limit", _DEFAULT_LIMIT))
        case "POST", "reset":
            reset()
            return HTTPStatus.OK, {}
        case "GET", "faults":
            return HTTPStatus.OK, namespace.faults.plain()
        case "POST", "faults":
            if not isinstance(body, dict):
                raise Refusal(errors.ARGUMENT_ERROR, "the body is not a JSON object, expected a fault")
            namespace.faults.add(Fault.read(body))
            return HTTPStatus.CREATED, namespace.faults.plain()
        case "DELETE", "faults":
            namespace.faults.clear()
            return HTTPStatus.OK, []
        case _:
            raise Refusal(errors.NOT_FOUND, f"{method} /{PREFIX}/{path}: unknown request")


def describe(namespace: Namespace) -> Plain:
    """Return the entities of a namespace."""
    counts = {path: asdict(each) for path, each in namespace.counts().items()}
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
                    each.name: {
                        "status": each.config.status,
                        "rules": [definition.rule.name for definition in each.rule_book.definitions],
                        "counts": counts[each.path],
                    }
                    for each in topic.subscriptions.values()
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


def messages(namespace: Namespace, path: str, limit: str) -> Plain:
    """Return the first messages at a path; a queue or topic includes its scheduled ones."""
    if not (limit.isascii() and limit.isdigit()):
        raise Refusal(errors.ARGUMENT_ERROR, f"limit is '{limit}', expected a whole number")
    entity = namespace.entity_of(path)
    is_whole = path.strip("/").lower() == entity.path.lower()
    found = entity.peek(0) if isinstance(entity, Queue | Topic) and is_whole else namespace.store(path).peek(0)
    return [_message(each) for each in itertools.islice(found, int(limit))]


def _message(message: StoredMessage) -> Plain:
    content: Content = message.content
    return {
        "sequence_number": message.sequence_number,
        "enqueue_sequence_number": message.enqueue_sequence_number,
        "enqueued_time": message.enqueued_time,
        "expires_at": message.expires_at,
        "scheduled_enqueue_time": content.scheduled_enqueue_time,
        "state": message.state.name.lower(),
        "is_locked": message.lock_token is not None,
        "locked_until": message.locked_until if message.lock_token is not None else None,
        "delivery_count": message.delivery_count,
        "message_id": str(plain(decode(content.message_id)[0])),
        "session_id": content.session_id,
        "partition_key": content.partition_key,
        "size": content.size,
    }
