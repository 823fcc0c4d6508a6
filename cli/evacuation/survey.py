"""What an entity has: its messages by what they are, found by peeking, and what it takes to move them."""

import contextlib
import math
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b

from cli.evacuation.pairs import Pair
from shared.message.peeked import PeekedMessage
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.run import AT_ONCE
from shared.status.verdict import duration

MARGIN_SECONDS = 60.0
"""A message that is due sooner is moved once it is active: it could become active on both sides."""

# Deferring a copy is one delivery (issue 375 of Azure/azure-service-bus), a run that is killed before it one more.
_LEAST_DELIVERIES = 3
# With sessions nobody can receive it (azure-sdk-for-net 34662).
_DEFERRED_LETTER = "is a dead letter that was deferred: it is received only by its sequence number, where it is"


class Share(StrEnum):
    """What a message is in its entity, in the order in which they are moved."""

    DEAD = "dead letter"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    ACTIVE = "active"


@dataclass
class Survey:
    """The messages of an entity that are to be moved: the session of each by its key, in the order of the entity."""

    shares: dict[Share, dict[str, str | None]] = field(default_factory=lambda: {share: {} for share in Share})
    left: dict[tuple[Share, str], str] = field(default_factory=dict)
    """Why a message cannot be moved."""
    due: dict[str, int] = field(default_factory=dict)
    """When scheduled messages are due that are not moved because that is soon, in milliseconds since 1970 UTC."""
    scheduled: set[str] = field(default_factory=set)
    """The keys of all scheduled messages."""
    were_scheduled: dict[str, str] = field(default_factory=dict)
    """The marks of active messages that had been scheduled, by key."""
    sessions: set[str] = field(default_factory=set)

    def knows(self, share: Share, letter: Letter, skipped: Collection[tuple[Share, str]]) -> bool:
        """Note what is needed to know of a message; return whether it may be moved now."""
        key = letter.key or ""
        if letter.session_id is not None:
            self.sessions.add(letter.session_id)
        if share is Share.SCHEDULED:
            self.scheduled.add(key)
        due = None if letter.message is None else letter.message.arrival.scheduled_time
        if (share, key) in skipped:
            return False
        if share is Share.ACTIVE and due is not None:
            self.were_scheduled[key] = mark_of(letter)
        if share is Share.SCHEDULED and due is not None and due / 1000 < time.time() + MARGIN_SECONDS:
            self.due[key] = due
            return False
        return True

    @property
    def count(self) -> int:
        """The number of messages to move."""
        return sum(map(len, self.shares.values()))


async def survey(pair: Pair, settings: Mapping[str, str], skipped: Collection[tuple[Share, str]] = ()) -> Survey:
    """Return what the source of *pair* has, without what is *skipped*; raises BuswayError if it cannot be read."""
    found, ids = Survey(), set[str]()
    places = [pair.source] if pair.is_topic else [pair.source.dead_letters(), pair.source]
    if pair.forwards:
        places.remove(pair.source)
    for place in places:
        async with contextlib.aclosing(peek(place, settings)) as letters:
            async for letter, message in letters:
                share = Share.DEAD if place.is_dead_letter_queue else _share_of(message)
                if letter.key is None or letter.message is None:
                    found.left[share, f"?{len(found.left)}"] = "cannot be read: its sections are not AMQP"
                elif found.knows(share, letter, skipped):
                    is_deferred = share is Share.DEAD and not message.is_active
                    reason = _DEFERRED_LETTER if is_deferred else _obstacle(pair, share, letter, ids)
                    if reason is None:
                        found.shares[share][letter.key] = letter.session_id
                    else:
                        found.left[share, letter.key] = reason
    return found


def _obstacle(pair: Pair, share: Share, letter: Letter, ids: set[str]) -> str | None:
    """Return what keeps a message from being moved, None if nothing does; *ids* are those of messages before it."""
    if pair.target_forwards:
        return f"{pair.target} forwards its messages: nothing can be looked for or set aside there"
    if share is Share.DEAD and pair.forwards_dead_letters:
        return f"{pair.source} forwards its dead letters: nothing can be received from there"
    if share is Share.DEFERRED and pair.max_delivery_count < _LEAST_DELIVERIES:
        limit = f"expected a MaxDeliveryCount of at least {_LEAST_DELIVERIES}, got {pair.max_delivery_count}"
        return f"deferring counts as a delivery, and {pair.target} could dead-letter it: {limit}"
    if pair.requires_session and letter.session_id is None:
        return "has no session id, which the target requires"
    if pair.drops_duplicates and letter.message_id is not None:
        if letter.message_id in ids:
            return f"has the id of another message, and {pair.destination} would drop it as a duplicate"
        ids.add(letter.message_id)
    return None


def _share_of(message: PeekedMessage) -> Share:
    if message.is_scheduled:
        return Share.SCHEDULED
    return Share.ACTIVE if message.is_active else Share.DEFERRED


def mark_of(letter: Letter) -> str:
    """Return what identifies a scheduled message also when it is active and has another sequence number."""
    message = letter.message
    assert message is not None  # noqa: S101 - only a message that can be read has a key
    raw = message.sections
    parts = (str(message.arrival.scheduled_time).encode(), raw.properties, raw.application_properties, raw.body)
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()


# Requests for each batch of messages, by what they are: receive, send, settle; and for those that are set aside at the
# target, receive and settle there.
_REQUESTS = {Share.ACTIVE: 3, Share.SCHEDULED: 3, Share.DEAD: 5, Share.DEFERRED: 5}
_SESSION_REQUESTS = 8
_CONNECTION_REQUESTS = 8
# Encoding, and the ledger on disk.
_MESSAGE_SECONDS = 0.002
_USD_PER_MILLION = 0.8
"""List price of operations on the Standard tier, beyond the first 13 million of a month; each has up to 64 KB."""
_SOON_SECONDS = 10.0


@dataclass
class Estimate:
    """The messages and requests of surveys, and the time that the surveys themselves took."""

    messages: int = 0
    operations: int = 0
    requests: int = 0
    surveyed_seconds: float = 0.0
    surveyed_requests: int = 0

    def add(self, found: Survey, seconds: float) -> None:
        """Add what a survey has found in a number of *seconds*."""
        for share, wanted in found.shares.items():
            self.messages += len(wanted)
            self.operations += len(wanted) * _REQUESTS[share]
            self.requests += math.ceil(len(wanted) / AT_ONCE) * _REQUESTS[share]
        self.requests += len(found.sessions) * _SESSION_REQUESTS + 2 * _CONNECTION_REQUESTS
        self.operations += len(found.sessions) * _SESSION_REQUESTS
        self.surveyed_seconds += seconds
        self.surveyed_requests += _CONNECTION_REQUESTS + math.ceil(found.count / AT_ONCE)

    def seconds(self, rate: float | None) -> float:
        """Return how long it takes, at most *rate* messages a second."""
        round_trip = self.surveyed_seconds / max(self.surveyed_requests, 1)
        return max(
            self.requests * round_trip + self.messages * _MESSAGE_SECONDS, 0 if rate is None else self.messages / rate
        )

    def text(self, rate: float | None) -> str:
        """Return a sentence for a person."""
        seconds = self.seconds(rate)
        time = "some seconds" if seconds < _SOON_SECONDS else f"about {duration(seconds)}"
        usd = self.operations / 1e6 * _USD_PER_MILLION
        price = "less than 0.01" if usd < 0.01 else f"about {usd:,.2f}"  # noqa: PLR2004 - a cent
        noun = "message" if self.messages == 1 else "messages"
        return (
            f"In all {self.messages:,} {noun}: {time} from here, and {self.operations:,} operations, {price} USD on "
            "Standard, none on Premium"
        )
