"""
Links of a chain of messages, and the state of sequences.

A link is a statement signed as a JWS (RFC 7515) in the property repl-chain. Its JSON has `sequence`, `number` (from 1),
`previous` (the hash of the link before, "" for the first), `bound` (the names of the properties that it covers) and
`digest` (the SHA-256 of their canonical form, a line feed and the body). The hash of a link is the SHA-256 of this JSON
as it was signed; both are in BASE64URL.
"""

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import WeakValueDictionary

from shared.codecs.json import read
from shared.editors.content.body import body_or_nothing
from shared.editors.protection.bound_properties import canonical_form, encoded, is_text, listed, message_id
from shared.editors.state.store import ContainerName, Store
from shared.errors import MessageRejected, TargetRefused, TargetUnavailable
from shared.message.arrival import Arrival
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.stores.blobs import answered_within
from shared.stores.documents import Changed, Documents

LINK = "repl-chain"
# Links of a sequence that are remembered, for redeliveries; or twice as many as a batch has, if that is more.
WINDOW = 256
_ATTEMPTS = 5
_AT_ONCE = 16  # sequences of a batch that are read at a time


class StoreOptions(Store):
    """Where the state of each sequence is stored."""

    container: ContainerName = "busway-chains"
    """Container; it is created if it is missing."""


class Link(NamedTuple):
    """One message's place in a sequence."""

    sequence: str
    number: int
    previous: str
    bound: tuple[str, ...]
    digest: str

    def encode(self) -> bytes:
        """Return the JSON to sign."""
        return _dumped(self._asdict()).encode()


def decode_link(payload: bytes) -> Link:
    """Return the link in a signed statement; raises MessageRejected."""
    said = read(payload)
    match said:
        case {
            "sequence": str(sequence),
            "number": int(number),
            "previous": str(previous),
            "bound": list(bound),
            "digest": str(digest),
        } if number >= 1 and not isinstance(number, bool) and is_text(sequence + previous + digest):
            return Link(sequence, number, previous, tuple(listed(bound)), digest)
    raise MessageRejected("ChainInserted", "the signed statement is not a link of a chain")


def hash_of(payload: bytes) -> str:
    """Return the hash of a link."""
    return encoded(hashlib.sha256(payload).digest())


def content_digest(names: Sequence[str], message: Message) -> str:
    """Return the digest of the properties *names* and of the body."""
    return encoded(hashlib.sha256(canonical_form(names, message) + b"\n" + body_or_nothing(message)).digest())


def identities(messages: Sequence[Message]) -> Iterator[str | None]:
    """Yield an identity of each message, the same at every delivery, None if it has none."""
    seen: dict[Arrival, int] = {}
    for message in messages:
        arrival = message.arrival
        # Parts of one message are distinguished by their place.
        part = seen[arrival] = seen.get(arrival, -1) + 1
        if arrival.event is not None:
            text = deterministic_id(arrival)
        elif arrival.sequence_number is None:
            identity = _readable_id(message)
            text = None if identity is None else f"id {identity}"
        else:
            text = f"{arrival.origin.partition}/{arrival.sequence_number}/{arrival.enqueued_time}"
        yield None if text is None else encoded(hashlib.sha256(f"{text}#{part}".encode()).digest()[:12])


def _readable_id(message: Message) -> str | None:
    try:
        return message_id(message)
    except MessageRejected:
        return None


@dataclass(slots=True)
class Progress:
    """The state of a sequence: its last number and hash, and the last of its links."""

    number: int = 0
    hash: str = ""
    before: str = ""
    """Hash of the link before the remembered ones."""
    links: list[tuple[str, str]] = field(default_factory=list)
    """Identity of a message and hash of its link, for the numbers up to the last one."""
    _numbers: dict[str, int] | None = None

    def copy(self) -> "Progress":
        """Return an independent copy."""
        return Progress(self.number, self.hash, self.before, list(self.links))

    def append(self, identity: str, link_hash: str) -> None:
        """Add a link."""
        self.number += 1
        self.hash = link_hash
        self.links.append((identity, link_hash))
        if self._numbers is not None:
            self._numbers[identity] = self.number

    def skip_to(self, number: int, previous: str) -> None:
        """Continue as if the link before *number* were the last one."""
        self.number, self.hash, self.before = number - 1, previous, previous
        self.links, self._numbers = [], None

    def number_of(self, identity: str) -> int | None:
        """Return the number of a message, None if it is not remembered."""
        if self._numbers is None:
            first = self.number - len(self.links) + 1
            self._numbers = {known: number for number, (known, _) in enumerate(self.links, first)}
        return self._numbers.get(identity)

    def hash_at(self, number: int) -> str | None:
        """Return the hash of a link, None if it is not remembered."""
        index = len(self.links) - 1 - (self.number - number)
        if index == -1:
            return self.before
        return self.links[index][1] if 0 <= index < len(self.links) else None

    def encode(self, keep: int) -> bytes:
        """Return the JSON to store, with the last *keep* links."""
        surplus = max(0, len(self.links) - keep)
        if surplus:
            self.before = self.links[surplus - 1][1]
            self.links, self._numbers = self.links[surplus:], None
        kept = {"number": self.number, "hash": self.hash, "before": self.before, "links": self.links}
        return _dumped(kept).encode()


class Sequences:
    """The states of a task's sequences, in a store that all instances of the app share."""

    def __init__(self, documents: Documents, folder: str, remembered: int = 0) -> None:
        """Store one document per sequence in *folder*; those *remembered* are not read before they are written."""
        self._documents = documents
        self._folder = folder
        self._remembered = remembered
        # The state that was last read or written, with its version; a write fails if another instance has changed it.
        self._known: OrderedDict[str, tuple[Progress, str | None]] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def update[T](self, sequence: str, change: Callable[[Progress], T], count: int, editor: str) -> T:
        """
        Return what *change* returns for the state of a sequence, which it may advance by *count*, once that is stored.

        No other batch of this process uses the sequence meanwhile. Raises TargetUnavailable, also if other instances
        write it each time: *change* is called again with what they have written.
        """
        turn = self._turns.get(sequence)
        if turn is None:
            turn = self._turns[sequence] = asyncio.Lock()
        async with turn:
            for _ in range(_ATTEMPTS):
                known = self._known.pop(sequence) if sequence in self._known else await self.read(sequence)
                before, version = known
                progress = before.copy()
                result = change(progress)
                if progress.number > before.number:
                    content = progress.encode(max(WINDOW, 2 * count))
                    try:
                        version = await self._documents.write_version(self._name(sequence), content, version)
                    except Changed:
                        continue
                self._known[sequence] = progress, version
                while len(self._known) > self._remembered:
                    self._known.popitem(last=False)
                return result
        raise TargetUnavailable(f"{editor}: other instances keep writing the same sequence")

    async def read(self, sequence: str) -> tuple[Progress, str | None]:
        """Return the state of a sequence and its version, None for a new sequence."""
        name = self._name(sequence)
        document = await self._documents.read_all(name)
        if document is None:
            return Progress(), None
        try:
            match read(document.content):
                case {"number": int(number), "hash": str(last), "before": str(before), "links": list(links)}:
                    return Progress(number, last, before, [_pair(link) for link in links]), document.version
        except (MessageRejected, ValueError):
            pass
        raise TargetRefused(f"document {name}: it is not the state of a sequence")

    def _name(self, sequence: str) -> str:
        return f"{self._folder}/{hashlib.sha256(sequence.encode()).hexdigest()[:40]}.json"


async def each_sequence[T](
    pairs: Mapping[int, tuple[str, T]],
    work: Callable[[str, list[tuple[int, T]]], Awaitable[None]],
    editor: str,
    timeout_seconds: float,
) -> None:
    """
    Do *work* for each sequence with its items and their index in the batch, some sequences at a time.

    Raises the first error when all have ended, and TargetUnavailable if the store takes too long.
    """
    groups: dict[str, list[tuple[int, T]]] = {}
    for index, (sequence, each) in pairs.items():
        groups.setdefault(sequence, []).append((index, each))
    places = asyncio.Semaphore(_AT_ONCE)

    async def do(sequence: str, members: list[tuple[int, T]]) -> None:
        async with places:
            await work(sequence, members)

    async with answered_within(timeout_seconds, editor):
        ends = await asyncio.gather(*(do(*item) for item in groups.items()), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end


def _pair(said: object) -> tuple[str, str]:
    match said:
        case [str(identity), str(link_hash)]:
            return identity, link_hash
    raise ValueError


_dumped = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
