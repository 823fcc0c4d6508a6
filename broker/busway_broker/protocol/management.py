"""
The operations that an entity's `$management` node answers.

Sources: Microsoft Learn, "AMQP request/response operations"; the SDKs for what the page does not mention.
"""

import itertools
import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from busway_broker import errors
from busway_broker.config import STANDARD_MESSAGE_SIZE, EntityStatus, LinkLimits, Right
from busway_broker.core.content import Content, read_content, unprocessable
from busway_broker.core.entities import Queue, Subscription, Topic
from busway_broker.core.message import StoredMessage
from busway_broker.core.namespace import Entity, top_level
from busway_broker.core.properties import why
from busway_broker.core.sequence_numbers import Part, partition_of
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.core.times import milliseconds
from busway_broker.core.transaction import Transaction, Work
from busway_broker.errors import Refusal
from busway_broker.protocol import rule_descriptions
from busway_broker.protocol.link_session import LinkConnection
from busway_broker.protocol.requests import ENTITY_KEYS, Arguments, Node, Request, Response, ok, refused
from shared.amqp.codec import items_of
from shared.amqp.errors import NOT_ALLOWED, NOT_IMPLEMENTED, AmqpError
from shared.amqp.values import NULL, Value, array, binary, int_, list_, map_, string, timestamp
from shared.amqp.values import uuid as uuid_value

_FEWER = 100
MAX_PEEKED_BYTES = 1024 * 1024
MAX_DELETED, MAX_DELETED_OF_PREMIUM = 500, 4_000
"""Of a batch that is deleted; pull requests 33944 of azure-sdk-for-python and 127665 of azure-docs."""
# A date past the year 9999 asks for all sessions, changed or not: azure-servicebus and @azure/service-bus send it.
_ALL_SESSIONS = 253_402_300_799_999

# Of the others, those that change messages and session states are; the rest is answered at once.
_NOT_IN_TRANSACTIONS = frozenset(("add-rule", "remove-rule", "batch-delete-messages"))
_SETTLING = frozenset(("update-disposition", "renew-lock"))
_SENDING = frozenset(("schedule-message", "cancel-scheduled-message"))
_NOT_OF_SEND_DISABLED = frozenset(("peek-message", "cancel-scheduled-message"))
_PREFIX = "com.microsoft:"


def entity_node(connection: LinkConnection[Any], path: str) -> Node:
    """Return the node of the entity or sub-queue at *path*; a Refusal if it does not exist."""
    namespace = connection.namespace
    entity: Entity | None
    store: MessageStore | None
    try:
        entity = namespace.entity(path)
    except AmqpError:
        entity, store = None, namespace.store(path)
    else:
        store = None if isinstance(entity, Topic) else entity.backlog.store
    management = Management(path, entity, store, connection)
    return Node(f"{path}/$management", management.answer, ENTITY_KEYS)


class Management:
    """The operations on one entity; a dead-letter queue has only a store, a topic has no store."""

    def __init__(
        self, path: str, entity: Entity | None, store: MessageStore | None, connection: LinkConnection[Any]
    ) -> None:
        """Answer the requests that arrive over *connection*."""
        self._connection = connection
        self._path = path
        self._entity = entity
        self._store = store
        self._transaction: Transaction | None = None
        self._most: int | None = None
        self._used_at = milliseconds(connection.namespace.clock)
        self._is_stale = False
        self._operations: dict[str, Callable[[Arguments], Response | None]] = {
            "peek-message": self._peek,
            "renew-lock": self._renew_lock,
            "update-disposition": self._update_disposition,
            "batch-delete-messages": self._delete_batch,
            "receive-by-sequence-number": self._receive_by_sequence_number,
            "schedule-message": self._schedule,
            "cancel-scheduled-message": self._cancel,
            "renew-session-lock": self._renew_session_lock,
            "get-session-state": self._get_session_state,
            "set-session-state": self._set_session_state,
            "get-message-sessions": self._get_message_sessions,
            "add-rule": self._add_rule,
            "remove-rule": self._remove_rule,
            "enumerate-rules": self._enumerate_rules,
        }

    def answer(self, request: Request) -> Response | None:
        """Carry out a request; a refused one is answered with its status and condition, None is no answer."""
        name = request.operation.removeprefix(_PREFIX)
        operation = self._operations.get(name)
        self._transaction, self._most = request.transaction, request.most
        self._note_use()
        try:
            self._connection.claims.check(self._path, frozenset((Right.SEND if name in _SENDING else Right.LISTEN,)))
            if name not in _SETTLING:
                self._check_forwarding()
            if name in _NOT_OF_SEND_DISABLED:
                self._check_send_disabled()
            if operation is None:
                text = f"{self._path}: unknown operation, expected one of {', '.join(self._operations)}"
                raise Refusal(NOT_IMPLEMENTED, text)
            if request.transaction is not None and name in _NOT_IN_TRANSACTIONS:
                raise Refusal(NOT_ALLOWED, f"{self._path}: the operation cannot be part of a transaction")
            return operation(Arguments(request.body))
        except AmqpError as refusal:
            return refused(refusal)

    def _do(self, *work: Work, sent: int = 0) -> None:
        """Carry out work: now, or with the commit of the transaction that the request is part of."""
        if self._transaction is not None:
            self._transaction.enlist(top_level(self._path), work, sent=sent)
            return
        for each in work:
            each.check()
        for each in work:
            each.carry_out()

    # Messages

    def _note_use(self) -> None:
        """Note a request; after a long pause the next peek finds nothing (issue 13471 of azure-sdk-for-js)."""
        limit, now = self._limits.peek_idle, milliseconds(self._connection.namespace.clock)
        self._is_stale = limit is not None and now - self._used_at >= limit // timedelta(milliseconds=1)
        self._used_at = now

    @property
    def _limits(self) -> LinkLimits:
        return self._connection.namespace.config.links

    def _check_forwarding(self) -> None:
        """Raise a Refusal if the entity forwards: it has no browser then (azure-service-bus-dotnet 626)."""
        if isinstance(self._entity, Queue | Subscription) and self._entity.config.forward_to is not None:
            text = "Cannot create a message browser on an entity with auto-forwarding enabled."
            raise Refusal(NOT_ALLOWED, text)

    def _check_send_disabled(self) -> None:
        """Raise a Refusal of what an entity that takes no messages does not answer (azure-sdk-for-net 22454)."""
        entity = self._entity
        if entity is not None and entity.config.status is EntityStatus.SEND_DISABLED:
            text = f"Messaging entity '{entity.path}' is currently disabled for Send operations."
            raise Refusal(errors.ENTITY_DISABLED, text)

    def _most_peeked(self, arguments: Arguments) -> int:
        """Return how many messages the answer to a peek may have."""
        if self._is_stale:
            return 0
        limits, numbers = self._limits, None if self._store is None else self._store.numbers
        is_partitioned = numbers is not None and numbers.are_partitioned
        most = limits.max_peeked_of_partitions if is_partitioned else limits.max_peeked
        return min(arguments.count("message-count"), most, most if self._most is None else self._most)

    def _peek(self, arguments: Arguments) -> Response:
        start = arguments.number("from-sequence-number")
        session_id = arguments.optional_text("session-id")
        messages = (
            message
            for message in (
                self._entity.peek(start) if isinstance(self._entity, Queue | Topic) else self._messages.peek(start)
            )
            if session_id is None or message.content.session_id == session_id
        )
        peeked: list[Value] = []
        size = 0
        partition: int | None = None
        most = self._most_peeked(arguments)
        for message in itertools.islice(messages, _fewer(most)):
            # One answer has the messages of one partition of a partitioned entity.
            if partition not in (None, partition_of(message.sequence_number)):
                break
            partition = partition_of(message.sequence_number)
            encoded = message.encode(with_lock=False)
            size += len(encoded)
            if peeked and size > MAX_PEEKED_BYTES:
                break
            peeked.append(_map({"message": binary(encoded)}))
        if not peeked:
            return Response(204, "No messages", condition=errors.MESSAGE_NOT_FOUND)
        return ok(_map({"messages": list_(peeked)}))

    def _renew_lock(self, arguments: Arguments) -> Response:
        ends = [self._messages.renew_lock(token) for token in self._lock_tokens(arguments)]
        return ok(_map({"expirations": array(0x83, [timestamp(end) for end in ends])}))

    def _update_disposition(self, arguments: Arguments) -> Response:
        status = arguments.text("disposition-status")
        changes = arguments.mapping("properties-to-modify")
        store = self._messages
        check: Callable[[bytes], None] = partial(store.check_change, changes=changes)
        match status:
            case "completed":
                settle: Callable[[bytes], None] = store.complete
                check = store.check_change
            case "abandoned":
                settle = partial(store.abandon, changes=changes)
            case "defered":
                settle = partial(store.defer, changes=changes)
            case "suspended":
                texts = (arguments.optional_text(f"deadletter-{name}") or "" for name in ("reason", "description"))
                changes = {**changes, **why(*texts)}
                settle = partial(store.dead_letter, changes=changes)
                check = partial(store.check_dead_letter, changes=changes)
            case _:
                raise Refusal(errors.ARGUMENT_ERROR, f"{self._path}: unknown disposition-status {status!r}")
        tokens = dict.fromkeys(self._lock_tokens(arguments))
        self._do(*(Work(partial(check, token), partial(settle, token), token) for token in tokens))
        return ok()

    def _lock_tokens(self, arguments: Arguments) -> list[bytes]:
        """Return the tokens in a request; a Refusal for one of a session that another connection holds."""
        tokens, store = arguments.lock_tokens("lock-tokens"), self._messages
        if isinstance(store, SessionStore):
            for token in tokens:
                store.check_holder(store.session_of(token), self._connection)
        return tokens

    def _delete_batch(self, arguments: Arguments) -> Response:
        count, session_id = arguments.count("message-count"), arguments.optional_text("session-id")
        is_premium = self._connection.namespace.config.max_message_size > STANDARD_MESSAGE_SIZE
        most = MAX_DELETED_OF_PREMIUM if is_premium else MAX_DELETED
        if count < 1:
            raise Refusal(errors.ARGUMENT_OUT_OF_RANGE, f"message-count: got {count}, expected 1 to {most}")
        if count > most:
            raise unprocessable()
        if isinstance(self._messages, SessionStore) and session_id is None:
            raise Refusal(NOT_IMPLEMENTED, f"{self._path}: it requires sessions; a batch is deleted of one of them")
        if self._messages.numbers.are_partitioned:
            raise Refusal(NOT_IMPLEMENTED, f"{self._path}: it is partitioned; no batch of it can be deleted")
        before = arguments.number("enqueued-time-utc")
        deleted = self._messages.delete(_fewer(count), before=before, session_id=session_id)
        return ok(_map({"message-count": int_(deleted)}))

    def _receive_by_sequence_number(self, arguments: Arguments) -> Response:
        session_id = arguments.optional_text("session-id")
        if isinstance(self._messages, SessionStore):
            self._messages.check_holder(session_id or "", self._connection)
        numbers = arguments.numbers("sequence-numbers")
        self._check_deferred(numbers)
        messages = self._messages.receive_deferred(
            numbers,
            session_id=session_id,
            destructive=arguments.number("receiver-settle-mode") == 0,
        )
        return ok(_map({"messages": list_([_received(message) for message in messages])}))

    def _check_deferred(self, numbers: Sequence[int]) -> None:
        """Raise a Refusal for numbers of several partitions, and for dead letters of an entity with sessions."""
        if self._messages.numbers.are_partitioned and len({*map(partition_of, numbers)}) > 1:
            text = "ReceiveBatch of sequence numbers from different partitions is not supported for an entity with "
            raise Refusal(NOT_ALLOWED, f"{text}partitioning enabled.")  # Azure/azure-service-bus 287
        if self._entity is None:
            owner = self._connection.namespace.entity_of(self._path)
            if not isinstance(owner, Topic) and owner.config.requires_session:
                text = "The session lock has expired on the MessageSession. Accept a new MessageSession."
                raise Refusal(errors.SESSION_LOCK_LOST, text)  # azure-sdk-for-net 34662

    def _schedule(self, arguments: Arguments) -> Response | None:
        entity = self._publishable
        contents = []
        largest = self._connection.namespace.max_message_size(entity)
        for value in items_of(arguments.value("messages")):
            encoded = Arguments.of(value).binary("message")
            if len(encoded) > largest:
                return None  # the service never answers (Azure/azure-service-bus 697)
            content = read_content(encoded)
            entity.check(content)
            contents.append(content)
        incoming = entity.incoming
        numbers = [incoming.numbers.assign(content) for content in contents]
        work = (
            Work(
                partial(entity.check, content),
                partial(incoming.schedule, content, number),
                parts=frozenset() if self._transaction is None else self._parts(content),
            )
            for content, number in zip(contents, numbers, strict=True)
        )
        self._do(*work, sent=len(contents))
        return ok(_map({"sequence-numbers": _longs(numbers)}))

    def _parts(self, content: Content) -> frozenset[Part]:
        part = self._publishable.incoming.numbers.part_for(content)
        return frozenset() if part is None else frozenset((part,))

    def _cancel(self, arguments: Arguments) -> Response:
        incoming, numbers = self._publishable.incoming, dict.fromkeys(arguments.numbers("sequence-numbers"))
        self._do(
            *(
                Work(
                    partial(incoming.check_scheduled, number), partial(incoming.cancel, [number]), ("scheduled", number)
                )
                for number in numbers
            )
        )
        return ok()

    @property
    def _messages(self) -> MessageStore:
        if self._store is None:
            raise Refusal(NOT_ALLOWED, f"{self._path}: it is a topic, expected a queue or subscription to receive from")
        return self._store

    @property
    def _publishable(self) -> Queue | Topic:
        if not isinstance(self._entity, Queue | Topic):
            raise Refusal(NOT_ALLOWED, f"{self._path}: it does not accept messages, expected a queue or topic")
        return self._entity

    # Sessions

    def _renew_session_lock(self, arguments: Arguments) -> Response:
        return ok(_map({"expiration": timestamp(self._sessions.renew_session_lock(arguments.text("session-id")))}))

    def _get_session_state(self, arguments: Arguments) -> Response:
        state = self._sessions.session_state(arguments.text("session-id"))
        return ok(_map({"session-state": NULL if state is None else binary(state)}))

    def _set_session_state(self, arguments: Arguments) -> Response:
        sessions, session_id = self._sessions, arguments.text("session-id")
        state = arguments.optional_binary("session-state")
        self._do(
            Work(partial(sessions.check_session, session_id), partial(sessions.set_session_state, session_id, state))
        )
        return ok()

    def _get_message_sessions(self, arguments: Arguments) -> Response:
        since = arguments.number("last-updated-time")
        skip, top = arguments.count("skip"), arguments.count("top")
        found = self._sessions.session_ids(None if since >= _ALL_SESSIONS else since)
        names = [string(name) for name in itertools.islice(found, skip, skip + top)]
        if not names:
            return Response(204, "No sessions")
        return ok(_map({"skip": int_(skip + len(names)), "sessions-ids": list_(names)}))

    @property
    def _sessions(self) -> SessionStore:
        if not isinstance(self._messages, SessionStore):
            raise Refusal(NOT_ALLOWED, f"{self._path}: it does not require sessions")
        return self._messages

    # Rules

    def _add_rule(self, arguments: Arguments) -> Response:
        description = Arguments.of(arguments.value("rule-description"))
        self._subscription.rule_book.add(rule_descriptions.read(arguments.text("rule-name"), description))
        return ok()

    def _remove_rule(self, arguments: Arguments) -> Response:
        self._subscription.rule_book.remove(arguments.text("rule-name"))
        return ok()

    def _enumerate_rules(self, arguments: Arguments) -> Response:
        skip, top = arguments.count("skip"), arguments.count("top")
        definitions = self._subscription.rule_book.definitions[skip : skip + top]
        if not definitions:
            return Response(204, "No rules")
        described = [_map({"rule-description": rule_descriptions.describe(definition)}) for definition in definitions]
        return ok(_map({"rules": list_(described)}))

    @property
    def _subscription(self) -> Subscription:
        if not isinstance(self._entity, Subscription):
            raise Refusal(NOT_ALLOWED, f"{self._path}: it has no rules, expected a subscription")
        return self._entity


def _fewer(count: int) -> int:
    """Return how many who asks for *count* gets, although more are there: 136 of 236 (azure-sdk-for-js 12450)."""
    return count if count <= _FEWER else max(_FEWER, count - _FEWER)


def _received(message: StoredMessage) -> Value:
    pairs = {"message": binary(message.encode())}
    if message.lock_token is not None:
        pairs["lock-token"] = uuid_value(uuid.UUID(bytes_le=message.lock_token))
    return _map(pairs)


def _map(pairs: dict[str, Value]) -> Value:
    return map_((string(name), value) for name, value in pairs.items())


def _longs(numbers: list[int]) -> Value:
    return array(0x81, [Value(0x81, number) for number in numbers])
