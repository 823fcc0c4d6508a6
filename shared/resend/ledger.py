"""
The record of what was resent, so that a run which was interrupted can be repeated: nothing is lost or sent twice.

A line is written to the store before each step: `sending` before messages are sent, then `sent`, `refused` (the target
has not accepted them) or, when they have left their entity, `completed`. `accepted` is a step before `sent`, where the
target has to do more than to accept them. A message that is still `sending` or `accepted` when a process was killed may
or may not have been sent: `shared.resend.evidence` finds out.

A ledger has a secret, with which a run signs its copies: what somebody else sends with the same stamp proves nothing.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from shared.clock import Clock, SystemClock
from shared.errors import ConfigError, Problem

SENDING, ACCEPTED, SENT, REFUSED, COMPLETED = "sending", "accepted", "sent", "refused", "completed"
OPEN = (SENDING, ACCEPTED)
"""States of a message that an interrupted run may have sent."""
DONE = (SENT, COMPLETED)
"""States of a message that was sent."""

_VERSION = 1
_PROOF = "#"


class Entry(NamedTuple):
    """The state of a message: since when (seconds since 1970 UTC), sent to what, and in which run."""

    state: str
    at: float
    to: str
    run: int
    share: str = ""
    """What the message was in its entity, where the ledger is of several kinds."""
    number: int | None = None
    """The sequence number of its copy, if that is known."""
    mark: str | None = None
    """What identifies it after it has got another sequence number."""


class LedgerStore(Protocol):
    """Lines that only one process at a time can append to."""

    @property
    def where(self) -> str:
        """The place of the lines, for people."""
        ...

    def opened(self) -> AbstractAsyncContextManager[Iterable[str]]:
        """
        Lock the lines and give them; those that were cut off are among them.

        Raises: ConfigError if another process has locked them, TargetUnavailable, TargetRefused.
        """
        ...

    async def append(self, line: str) -> None:
        """Write a line, which lasts from then on; raises TargetUnavailable, TargetRefused."""
        ...


class MemoryStore:
    """Lines that end with the process, for a run that needs no record; it is a `LedgerStore`."""

    def __init__(self, lines: Iterable[str] = (), where: str = "memory") -> None:
        """Begin with *lines*, which are *where*."""
        self.where = where
        self._lines = lines

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Iterable[str]]:
        """Give the lines."""
        yield self._lines

    async def append(self, line: str) -> None:
        """Keep nothing: the ledger has the states."""


class Ledger:
    """
    The states of messages by their keys.

    Raises: opening raises what the store raises, and ConfigError if it has the ledger of something else.
    """

    def __init__(self, store: LedgerStore, name: str, clock: Clock | None = None) -> None:
        """Use *store* for the messages of the entity *name*."""
        self.clock = clock or SystemClock()
        self.entries: dict[str, Entry] = {}
        self.run = 0
        self.share = ""
        """What is noted from now on; see `Entry.share`."""
        self.quiet_since = 0.0
        """The latest time at which a message may have been sent whose answer did not come, as `Entry.at`."""
        self.finished = 0
        """The last run after which nothing was left."""
        self.marks: dict[str, dict[int, int]] = {}
        """The numbers of the marks that have not been cancelled, by their places and runs."""
        self.attempts = count()
        """Numbers what this run schedules: detection drops a message with an id that was there before."""
        self.is_certain = True
        """Whether it has no line that is not known here; an append that failed may have left one."""
        self._numbers: dict[str, list[int]] = {}
        self._secret = secrets.token_hex(16)
        self._store = store
        self._name = name

    @property
    def where(self) -> str:
        """Where it is, for people."""
        return self._store.where

    async def __aenter__(self) -> Self:
        """Lock it and read it; a line that was cut off is ignored."""
        async with contextlib.AsyncExitStack() as opened:
            self._read(await opened.enter_async_context(self._store.opened()))
            self.run += 1
            self.has_sent()  # until now, another process may have done so
            head = {"ledger": _VERSION, "entity": self._name, "run": self.run, "at": self.clock.now().timestamp()}
            await self._append(head | {"secret": self._secret})
            self._opened = opened.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Unlock it."""
        await self._opened.aclose()

    def has_sent(self) -> None:
        """Record that a message may have been sent just now whose answer did not come."""
        self.quiet_since = self.clock.now().timestamp()

    def proof(self, text: str) -> str:
        """Return what only a run with this ledger can write beside *text*; the same in each run."""
        return hmac.new(self._secret.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]

    def signed(self, text: str) -> str:
        """Return *text* with its proof."""
        return f"{text}{_PROOF}{self.proof(text)}"

    def text_of(self, signed: str) -> str | None:
        """Return the text that a run with this ledger has *signed*, None if none has."""
        text = signed.rpartition(_PROOF)[0]
        is_own = hmac.compare_digest(self.signed(text).encode(errors="replace"), signed.encode(errors="replace"))
        return text if is_own else None

    def state(self, key: str) -> str | None:
        """Return the state of a message, None for one that was never sent."""
        entry = self.entries.get(key)
        return None if entry is None else entry.state

    def count(self, *states: str) -> int:
        """Return the number of messages in *states*."""
        return sum(entry.state in states for entry in self.entries.values())

    async def note(
        self, state: str, keys: Iterable[str], to: str, *, numbers: Sequence[int] = (), marks: Sequence[str] = ()
    ) -> None:
        """
        Record that messages are in *state*; *numbers* and *marks*, if given, are those of each.

        Raises what the store raises, and then nothing has changed here.
        """
        known = list(keys)
        if not known:
            return
        line = {"state": state, "to": to, "at": self.clock.now().timestamp(), "keys": known}
        more = {"share": self.share, "numbers": [*numbers], "marks": [*marks]}
        line |= {name: value for name, value in more.items() if value}
        await self._append(line)
        self._apply(line)

    async def note_number(self, place: str, number: int, *, is_mark: bool = False) -> None:
        """
        Record a number of *place* that no message of others has; see `shared.resend.numbering`.

        With *is_mark* it is that of the message which shows where this run began.
        """
        await self._append({"place": place, "number": number} | ({"mark": True} if is_mark else {}))
        self._note_number(place, number, is_mark=is_mark)

    def numbers_of(self, place: str) -> Sequence[int]:
        """Return the recorded numbers of *place*, in the order of their record."""
        return self._numbers.get(place, ())

    def marks_of(self, place: str) -> Mapping[int, int]:
        """Return the number of the mark of each run at *place* that has not been cancelled."""
        return self.marks.get(place, {})

    async def note_cancelled(self, place: str, run: int) -> None:
        """Record that the mark of a *run* is cancelled."""
        await self._append({"place": place, "cancelled": run})
        self.marks.get(place, {}).pop(run, None)

    def _note_number(self, place: str, number: int, *, is_mark: bool) -> None:
        self._numbers.setdefault(place, []).append(number)
        if is_mark:
            self.marks.setdefault(place, {})[self.run] = number

    async def note_finished(self) -> None:
        """Record that nothing is left: what runs do from now on is another round."""
        await self._append({"finished": self.run})

    def sent_before(self, entry: Entry) -> list[str]:
        """Return what the latest run up to that of *entry* is known to have sent to the same target."""
        by_run: dict[int, list[str]] = {}
        for key, each in self.entries.items():
            if each.to == entry.to and each.run <= entry.run and each.state in DONE:
                by_run.setdefault(each.run, []).append(key)
        return by_run[max(by_run)] if by_run else []

    async def _append(self, line: object) -> None:
        before, self.is_certain = self.is_certain, False
        await self._store.append(json.dumps(line) + "\n")
        self.is_certain = before

    def _apply(self, line: Mapping[str, Any]) -> None:
        keys, state = line["keys"], line["state"]
        nothing = [None] * len(keys)
        numbers, marks = line.get("numbers", nothing), line.get("marks", nothing)
        for key, number, mark in zip(keys, numbers, marks, strict=True):
            entry = Entry(state, line["at"], line["to"], self.run, line.get("share", ""), number, mark)
            before = self.entries.get(key)
            if before is not None:
                entry = entry._replace(
                    # A message belongs to the run that has sent it.
                    run=before.run if state == COMPLETED else self.run,
                    share=entry.share or before.share,
                    number=before.number if number is None else number,
                    mark=before.mark if mark is None else mark,
                )
            self.entries[key] = entry

    def _read(self, lines: Iterable[str]) -> None:
        self.entries, self.run, self.finished, self._numbers, self.marks = {}, 0, 0, {}, {}
        for line in lines:
            try:
                content = json.loads(line)
                if "ledger" in content:
                    self._check(content)
                    self.run = content["run"]
                    self._secret = str(content.get("secret", self._secret))
                elif "finished" in content:
                    self.finished = int(content["finished"])
                elif "number" in content:
                    self._note_number(content["place"], int(content["number"]), is_mark=bool(content.get("mark")))
                elif "cancelled" in content:
                    self.marks.get(content["place"], {}).pop(content["cancelled"], None)
                elif "key" in content:  # of a repair, until version 0.2
                    self._apply({"keys": [content["key"]], "state": content["state"], "at": 0.0, "to": ""})
                else:
                    self._apply(content)
            except (ValueError, LookupError, TypeError):
                continue

    def _check(self, head: dict[str, object]) -> None:
        if head["ledger"] != _VERSION or head["entity"] != self._name:
            found = f"is the ledger of {head['entity']}, version {head['ledger']}"
            expected = f"expected that of {self._name}, version {_VERSION}: name another one with --ledger"
            raise ConfigError([Problem(self.where, found, expected)])
