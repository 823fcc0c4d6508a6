"""A message in an entity, and its encoding for delivery."""

import itertools
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from busway_broker import errors
from busway_broker.core.content import Content
from busway_broker.errors import Refusal
from shared.amqp.scan import skip

MAX_UINT = 0xFFFFFFFF


class State(IntEnum):
    """The state of a message, as in the annotation x-opt-message-state."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


@dataclass(slots=True, eq=False)
class StoredMessage:
    """
    The content of a message with what the entity has assigned to it.

    Units: times in milliseconds since 1970 UTC, time_to_live in milliseconds (the sender's or that of the entity);
    an entity whose messages do not expire leaves does_expire False; delivery_count counts the failed attempts. A
    message is locked while it has a lock token. The enqueue sequence number is that of the entity it was first sent
    to, 0 if it is this one.
    """

    content: Content
    sequence_number: int
    enqueue_sequence_number: int
    enqueued_time: int
    time_to_live: int | None
    does_expire: bool = False
    delivery_count: int = 0
    state: State = State.ACTIVE
    lock_token: bytes | None = None
    locked_until: int = 0

    @property
    def original_number(self) -> int:
        """Return the sequence number in the entity that the message was first sent to."""
        return self.enqueue_sequence_number or self.sequence_number

    @property
    def expires_at(self) -> int | None:
        """Return when the time to live ends, None for a message that does not expire."""
        time_to_live = self.time_to_live
        return self.enqueued_time + time_to_live if time_to_live is not None and self.does_expire else None

    def is_expired(self, now: int, *, if_deferred: bool = False) -> bool:
        """Return whether the time to live has passed; a deferred message does not expire, except *if_deferred*."""
        time_to_live = self.time_to_live
        return (
            time_to_live is not None
            and self.does_expire
            and self.enqueued_time + time_to_live <= now
            and (self.state is State.ACTIVE or if_deferred)
        )

    def encode(self, *, with_lock: bool = True) -> bytes:
        """
        Return the message encoded for delivery, with its lock token and the end of its lock if it is locked.

        Its time to live is the sender's; that of the entity does not show (Azure/azure-service-bus issue 432).
        """
        content = self.content
        # These and no others: a message that Azure delivers from a queue has neither the state nor the other number.
        count = 2 + content.annotation_count
        token = self.lock_token
        if token is None or not with_lock:
            token = None
            more = b""
        else:
            more = _LOCKED_UNTIL.pack(_LOCKED_UNTIL_KEY, self.locked_until)
            count += 1
        if self.enqueue_sequence_number:
            more += _MOVED.pack(_ENQUEUE_SEQUENCE_NUMBER_KEY, self.enqueue_sequence_number)
            count += 1
        if self.state:
            more += _STATE.pack(_STATE_KEY, self.state)
            count += 1
        return b"".join(
            (
                _header(content.header, content.time_to_live, self.delivery_count),
                _delivery_annotations(token, content.delivery_annotations),
                _ANNOTATIONS.pack(
                    b"\x00\x53\x72\xd1",
                    _ANNOTATIONS_WIDTH + len(more) + len(content.annotations),
                    2 * count,
                    _ENQUEUED_TIME_KEY,
                    self.enqueued_time,
                    _SEQUENCE_NUMBER_KEY,
                    self.sequence_number,
                ),
                more,
                content.annotations,
                content.bare,
            )
        )


@lru_cache
def _header(kept: bytes, time_to_live: int | None, delivery_count: int) -> bytes:
    # All five fields: .NET rejects a message whose header omits the delivery count.
    ttl = b"\x40" if time_to_live is None else _UINT.pack(0x70, min(time_to_live, MAX_UINT))
    fields = b"%b%b\x40%b" % (kept, ttl, _UINT.pack(0x70, delivery_count))
    return b"\x00\x53\x70\xc0%c\x05%b" % (len(fields) + 1, fields)


def _delivery_annotations(token: bytes | None, kept: bytes) -> bytes:
    """Return the section of the sender's pairs and the lock token; Azure sends it even if it is empty."""
    if token is None and not kept:
        return _NO_DELIVERY_ANNOTATIONS
    if token is None:
        pairs = kept
    else:
        first, last = _in_network_order(token[:8]), token[8:]
        if not kept:
            return _ONLY_LOCK_TOKEN + first + last
        pairs = b"%b%b%b%b" % (_LOCK_TOKEN_KEY, first, last, kept)
    count = sum(1 for _ in _values(pairs))
    return b"\x00\x53\x71\xd1%b%b" % (_SIZE_AND_COUNT.pack(len(pairs) + 4, count), pairs)


# The first half of all lock tokens of an entity is the same.
@lru_cache
def _in_network_order(half: bytes) -> bytes:
    """Return the first half of a lock token, which has the order of .NET's Guid, as an AMQP uuid has it."""
    return half[3::-1] + half[5:3:-1] + half[7:5:-1]


def _values(encoded: bytes) -> Iterator[int]:
    """Yield where each of several encoded values ends."""
    position = 0
    while position < len(encoded):
        position = skip(encoded, position, len(encoded))
        yield position


def _symbol_key(name: bytes, code: int) -> bytes:
    """Return the encoded key of an annotation and the format code of the value that follows."""
    return b"\xa3%c%b%c" % (len(name), name, code)


_UINT = struct.Struct(">BI")
_SEQUENCE_NUMBER_KEY = _symbol_key(b"x-opt-sequence-number", 0x81)
_ENQUEUED_TIME_KEY = _symbol_key(b"x-opt-enqueued-time", 0x83)
_ENQUEUE_SEQUENCE_NUMBER_KEY = _symbol_key(b"x-opt-enqueue-sequence-number", 0x81)
_STATE_KEY = _symbol_key(b"x-opt-message-state", 0x71)
_LOCK_TOKEN_KEY = _symbol_key(b"x-opt-lock-token", 0x98)
_NO_DELIVERY_ANNOTATIONS = b"\x00\x53\x71\xc1\x01\x00"
_ONLY_LOCK_TOKEN = b"\x00\x53\x71\xc1%c\x02%b" % (1 + len(_LOCK_TOKEN_KEY) + 16, _LOCK_TOKEN_KEY)
_SIZE_AND_COUNT = struct.Struct(">II")
_LOCKED_UNTIL_KEY = _symbol_key(b"x-opt-locked-until", 0x83)

_ANNOTATIONS = struct.Struct(f">4sII{len(_ENQUEUED_TIME_KEY)}sq{len(_SEQUENCE_NUMBER_KEY)}sq")
_MOVED = struct.Struct(f">{len(_ENQUEUE_SEQUENCE_NUMBER_KEY)}sq")
_STATE = struct.Struct(f">{len(_STATE_KEY)}si")
_LOCKED_UNTIL = struct.Struct(f">{len(_LOCKED_UNTIL_KEY)}sq")
_ANNOTATIONS_WIDTH = _ANNOTATIONS.size - 8  # the map's size excludes the descriptor, the format code and itself


_TOKEN = struct.Struct(">8sQ")


class Locks(dict[bytes, StoredMessage]):
    """
    The locked messages by token.

    They are in the order of expiry: all locks last equally long, and renewing one moves it to the end. Shortening the
    lock duration while messages are locked breaks the order, and so do the locks of a group.
    """

    def __init__(self) -> None:
        super().__init__()
        self.are_in_order = True
        self._prefix = os.urandom(8)
        self._numbers = itertools.count(1)

    def new_token(self) -> bytes:
        """Return a token that was never used."""
        return _TOKEN.pack(self._prefix, next(self._numbers))

    def message(self, token: bytes) -> StoredMessage:
        """Return the message with this lock; this and the methods below raise Refusal(MESSAGE_LOCK_LOST)."""
        message = self.get(token)
        if message is None:
            raise Refusal(
                errors.MESSAGE_LOCK_LOST,
                "The lock supplied is invalid. Either the lock expired, or the message has already been removed from "
                "the queue.",
            )
        return message

    def renew(self, token: bytes, until: int) -> int:
        """Let a lock end at *until*, and return that."""
        message = self.message(token)
        del self[token]
        message.locked_until = until
        self[token] = message
        return until

    def end(self, token: bytes) -> StoredMessage:
        """Remove a lock and return its message."""
        message = self.pop(token, None) or self.message(token)
        message.lock_token = None
        return message

    def due(self, now: int) -> list[StoredMessage]:
        """Return the messages whose lock has ended."""
        lost = []
        for message in self.values():
            if message.locked_until <= now:
                lost.append(message)
            elif self.are_in_order:
                break
        return lost

    def next_end(self) -> int | None:
        """Return when the next lock ends."""
        ends = (message.locked_until for message in self.values())
        return next(ends, None) if self.are_in_order else min(ends, default=None)
