"""The claim-check editor: large bodies go to blob storage."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Annotated
from urllib.parse import quote

from pydantic import Field

from shared.amqp.codec import encode
from shared.editors.options import Stateless, Step, TaskFacts
from shared.editors.state.claims import PROPERTY, Claim, body_to_store, set_claim
from shared.editors.state.store import ContainerName, Store
from shared.errors import MessageRejected
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.protocols import EditedTogether
from shared.stores.blobs import Blobs, answered_within, some_at_once
from shared.time_limit import DEFAULT_SECONDS, TimeLimit

_DIGEST_LENGTH = 16
_DAY = 24 * 60 * 60 * 1000


class ClaimCheckOptions(Store):
    """Which bodies are stored, and where."""

    container: ContainerName = "busway-claims"
    """Container; it is created if it is missing."""
    above: Annotated[int, Field(ge=0, le=100 * 1024 * 1024)] = 192 * 1024
    """Largest body in bytes that stays in its message; larger bodies are stored."""


class ClaimCheckStep(Step):
    """
    Stores large bodies as blobs and replaces each by a claim, from which `claim-restore` restores it.

    A claim is a small JSON body of the type application/vnd.busway.claim-check+json with the container, name, size and
    SHA-256 of the blob, and the content type of the body. The name is also in the application property `claim-check`.
    The blob has the bytes of the body and their MD5. A redelivered message uses the same blob. Busway does not delete
    blobs: give the container a lifecycle rule, or let `claim-restore` delete each blob that it has restored.
    """

    options: ClaimCheckOptions = Field(alias="claim-check")

    def editor(self, task: TaskFacts, /) -> "ClaimCheck":
        """Return the editor with these options."""
        return ClaimCheck(self.options.open(task, "claim-check"), self.options.above, task.edit_seconds)


class ClaimCheck(Stateless):
    """Replaces large bodies by claims."""

    name = "claim-check"

    def __init__(self, blobs: Blobs, above: int, edit_seconds: float = DEFAULT_SECONDS) -> None:
        """Store bodies of more than *above* bytes in *blobs*; each message may take *edit_seconds*."""
        self._time_limit = TimeLimit(edit_seconds)
        self._blobs = blobs
        self._above = above
        # Blobs that an interrupted attempt has written; the next attempt does not write them again.
        self._kept: set[str] = set()

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return the messages, with claims for large bodies, after these were stored."""
        uploads: dict[str, tuple[bytes, str | None]] = {}
        parts: Counter[Arrival] = Counter()

        def edit(message: Message) -> Message:
            part = parts[message.arrival]
            parts[message.arrival] += 1
            return self._edit(message, part, uploads)

        edited = await self._time_limit.each(edit, messages)
        if uploads:
            await self._upload(uploads, timeout_seconds)
        return [each if isinstance(each, MessageRejected) else (each,) for each in edited]

    def _edit(self, message: Message, part: int, uploads: dict[str, tuple[bytes, str | None]]) -> Message:
        content, form = body_to_store(message)
        if len(content) <= self._above:
            return message
        if message.application_property(PROPERTY) is not None:
            problem = f"has the property {PROPERTY} and a large body, expected only one of them"
            raise MessageRejected("ClaimedAlready", problem)
        digest = sha256(content).hexdigest()
        name = _name(message, part, digest)
        content_type = message.content_type
        uploads[name] = content, content_type if form == "data" else None
        edited = message.copy()
        set_claim(edited, Claim(self._blobs.url, name, len(content), digest, form, content_type))
        return edited

    async def _upload(self, uploads: dict[str, tuple[bytes, str | None]], timeout_seconds: float) -> None:
        async def upload(name: str, content: bytes, content_type: str | None) -> None:
            await self._blobs.write(name, content, content_type)
            self._kept.add(name)

        async with answered_within(timeout_seconds, self._blobs.url):
            await some_at_once(upload(name, *what) for name, what in uploads.items() if name not in self._kept)
        self._kept.clear()


def _name(message: Message, part: int, digest: str) -> str:
    """
    Return the name of a body's blob, which is the same at every delivery of the same body.

    It has part of the digest, because an encrypted body differs at each delivery and an earlier one may be in transit.
    """
    arrival = message.arrival
    if arrival.sequence_number is None or arrival.enqueued_time is None:
        identity = message.message_id
        day = "unnumbered"
        number = "none" if identity is None else sha256(encode(identity)).hexdigest()[:_DIGEST_LENGTH]
    else:
        day = _day(arrival.enqueued_time // _DAY)
        number = f"{arrival.sequence_number}-{arrival.enqueued_time}-{part}"
        if arrival.event is not None:
            number = f"{deterministic_id(arrival)}-{part}"  # of the messages of an envelope, one number is that of all
    return f"{_place(arrival.origin)}/{day}/{number}-{digest[:_DIGEST_LENGTH]}"


# Keeping the last results saves 6 µs for each large body.
@lru_cache(maxsize=64)
def _place(origin: Origin) -> str:
    partition = () if origin.partition is None else (origin.partition,)
    return "/".join(quote(each, safe="") for each in (origin.site, *origin.entity.split("/"), *partition))


@lru_cache(maxsize=64)
def _day(number: int) -> str:
    try:
        return datetime.fromtimestamp(number * _DAY / 1000, UTC).strftime("%Y-%m-%d")
    except (ValueError, OverflowError, OSError):
        return "undated"  # a time of no calendar
