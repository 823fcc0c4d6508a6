"""
Random histories of a durable sender at two namespaces: a seed draws the faults, the delays and the order of all steps.

Namespaces refuse, are silent or stuck; they accept without an answer or after the sender has given up; messages are too
large for a batch or for the entity; the file is full; sends are cancelled, and the process is killed and started again.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from busway_clients import Outbox, OutboxFull, SendFailed, StoreUnavailable
from busway_clients.aio import ActiveSender, DurableSender, PassiveSender
from busway_clients.senders.roles import StoredRoles
from busway_clients.sessions import SqliteStore
from tests.clients.uncertain import ClientHistory, UncertainStore

SITES = ("west", "east")
_LIMIT = 20_000.0
_IN_A_BATCH = 3
_LARGE, _TOO_LARGE = 1_000, 5_000


def size_of(message: Any) -> int:
    return len(b"".join(message.body))


class Batch:
    """The SDK's batch: some small messages."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def __len__(self) -> int:
        return len(self.messages)

    def add_message(self, message: Any) -> None:
        raw = getattr(message, "raw_amqp_message", message)
        if len(self.messages) >= _IN_A_BATCH or size_of(raw) > _LARGE:
            raise MessageSizeExceededError(message="no room")
        self.messages.append(raw)


class Link:
    """The SDK's sender to one namespace."""

    def __init__(self, history: "History", site: str) -> None:
        self._history, self._site = history, site

    async def create_message_batch(self) -> Batch:
        await asyncio.sleep(self._history.latency())
        if self._history.is_down(self._site):
            raise ServiceBusConnectionError(message="no link")
        return Batch()

    async def send_messages(self, payload: Any, *, timeout: float | None) -> None:  # noqa: ASYNC109 - as the SDK's
        history = self._history
        messages = payload.messages if isinstance(payload, Batch) else [getattr(payload, "raw_amqp_message", payload)]
        await asyncio.sleep(history.latency())
        if history.is_down(self._site):
            if history.outage_kind == "refuses":
                raise ServiceBusConnectionError(message="refused")
            await asyncio.sleep(1e6 if history.outage_kind == "stuck" else 30.0 if timeout is None else timeout)
            raise OperationTimeoutError(message="silent")
        if any(size_of(message) > _TOO_LARGE for message in messages):
            raise MessageSizeExceededError(message="too large")
        fault = history.chance.choice(("lost", "unanswered", "late", "busy")) if history.is_faulty() else None
        if fault == "busy":
            raise ServiceBusServerBusyError(message="busy")
        if fault == "late":
            history.note(f"{self._site}: {[each.properties.message_id for each in messages]} will arrive late")
            history.doubt(messages)
            history.later(history.chance.choice((1.0, 8.0)), lambda: history.accept(self._site, messages))
            await asyncio.sleep(30.0 if timeout is None else timeout)
            raise OperationTimeoutError(message="no answer")
        if fault != "lost":
            history.accept(self._site, messages)
        if fault == "unanswered":
            history.doubt(messages)
        if fault is not None:
            raise ServiceBusConnectionError(message="the link broke")
        await asyncio.sleep(history.latency())
        history.note(f"{self._site} answers {[each.properties.message_id for each in messages]}")


@dataclass
class Process:
    """A process of the application."""

    is_dead: bool = False
    wall: float = 0.0
    started: float = 0.0
    sends: list[asyncio.Future[list[Any]]] = field(default_factory=list)


class History(ClientHistory):
    """What happens under one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.chance
        self.rate = chance.choice((0.0, 0.02, 0.1))
        self.calm = chance.choice((30.0, 200.0))
        self.outage_kind = chance.choice(("refuses", "silent", "stuck"))
        began = chance.uniform(0, self.calm)
        self._outages = {
            site: (chance.choice((began, chance.uniform(0, self.calm))), chance.choice((0.0, 10.0, 60.0)))
            for site in SITES
        }
        # The roles are kept in west.
        self.outage = self._outages["west"]
        self._timeout = chance.choice((1.0, 5.0, 5.0, None) if self.outage_kind != "stuck" else (1.0, 5.0))
        self._kind = chance.choice(("passive", "passive", "active", "all"))
        self._disturbances = chance.choice((0, 0, 1, 3))
        self.accepted: dict[str, list[str]] = {site: [] for site in SITES}
        self.order: list[str] = []
        self.doubtful: set[str] = set()
        self.promised: set[str] = set()
        self.unknown: set[str] = set()
        self.large: set[str] = set()
        self.discarded: set[str] = set()
        self._sent: dict[str, list[str]] = {}
        self._rows = SqliteStore(":memory:")
        self.outbox = Outbox(":memory:", max_messages=chance.choice((4, 1000, 1000)))
        self._process = Process()
        self._left: dict[str, int] = {}

    def is_down(self, site: str) -> bool:
        start, seconds = self._outages[site]
        return start <= self.loop.time() < start + seconds

    def doubt(self, messages: Sequence[Any]) -> None:
        self.doubtful |= {str(each.properties.message_id) for each in messages}

    def accept(self, site: str, messages: Sequence[Any]) -> None:
        for message in messages:
            name = str(message.properties.message_id)
            self.note(f"{site} accepts {name}")
            for held in self.outbox.held() if self.large - self.discarded else ():
                session = self._sent[str(held.lane)]
                if name in session and session.index(held.message_id) < session.index(name):
                    self.found.append(f"{name} is sent although {held.message_id} is held")
            self.accepted[site].append(name)
            self.order.append(name)

    def run(self) -> bool:
        """Go on until everything is sent; return whether that was so."""
        for session in range(self.chance.choice((1, 2, 3))):
            self._left[f"s{session}"] = self.chance.choice((2, 5, 10))
        self.later(0.0, self._start)
        self.later(10.0, self._operate)
        for _ in range(self._disturbances):
            self.later(self.chance.uniform(0, self.calm), self._disturb)
        try:
            return self.play(lambda: self.loop.time() > self.calm + 100 and self._is_over(), _LIMIT)
        finally:
            self._rows.close()
            self.outbox.close()

    def _is_over(self) -> bool:
        return not any(self._left.values()) and not len(self.outbox)

    def _operate(self) -> None:
        """Discard what is held, as an operator does."""
        for held in self.outbox.held():
            if held.message_id not in self.large:
                self.found.append(f"{held.message_id} is held: {held.fault}")
            self.note(f"{held.message_id} is discarded")
            self.discarded.add(held.message_id)
            self.outbox.remove([held.number])
        self.later(10.0, self._operate)

    def _start(self) -> None:
        process = self._process = Process()
        links: Any = {site: Link(self, site) for site in SITES}
        rows: Any = UncertainStore(self, self._rows)
        roles = StoredRoles(rows, "sender") if self.chance.random() < 0.5 else None
        inner: Any
        if self._kind == "passive":
            inner = PassiveSender(links, roles=roles)
        else:
            inner = ActiveSender(links, success="any" if self._kind == "active" else "all", delay=timedelta())
        sender = DurableSender(inner, self.outbox)
        for each in self._left:
            self.begin(process, self._send_all(process, sender, each))
        self.begin(process, sender.keep_draining(pause=1.0))

    def _disturb(self) -> None:
        """Kill the process and start it again, or cancel the current sends."""
        kind = self.chance.choice(("killed", "cancelled"))
        self.note(kind)
        if kind == "cancelled":
            for sending in self._process.sends:
                sending.cancel()
        elif not self._process.is_dead:
            self._process.is_dead = True
            # It may be sent, and not yet removed.
            self.doubtful |= {waiting.message.message_id for waiting in self.outbox.next(1000)}
            self.later(1.0, self._start)

    async def _send_all(self, process: Process, sender: Any, session: str) -> None:
        while self._left[session]:
            messages = [self._message(session) for _ in range(self.chance.choice((1, 1, 2, 5, 12)))]
            names = [str(each.message_id) for each in messages]
            self._left[session] -= 1
            # Until it has returned, nobody knows.
            self.unknown |= {*names}
            while messages:
                sending = asyncio.ensure_future(self._send(sender, messages))
                process.sends.append(sending)
                await asyncio.wait({sending})
                process.sends.remove(sending)
                messages = [] if sending.cancelled() else sending.result()
                if messages:
                    await asyncio.sleep(1.0)
            await asyncio.sleep(self.chance.choice((0.0, 0.1, 5.0)))

    def _message(self, session: str) -> ServiceBusMessage:
        sent = self._sent.setdefault(session, [])
        name = f"{session}.{len(sent)}"
        sent.append(name)
        size = self.chance.choice((1, 1, 1, 1, 1, 1, _LARGE + 1, _TOO_LARGE + 1))
        if size > _TOO_LARGE:
            self.large.add(name)
        return ServiceBusMessage(b"x" * size, message_id=name, session_id=session)

    async def _send(self, sender: Any, messages: Sequence[Any]) -> list[Any]:
        """Send, and return what is to be sent again."""
        names = [str(each.message_id) for each in messages]
        began = self.loop.time()
        self.note(f"send {names}")
        unsent: Sequence[str] = []
        try:
            accepted = await sender.send(messages, timeout=self._timeout)
        except (SendFailed, OutboxFull) as error:
            unsent = error.unsent
            self.note(f"{type(error).__name__}, unsent {unsent}")
            for site, delivery in ({} if error.outcome is None else error.outcome.deliveries).items():
                self._require(site, delivery.accepted)
        except StoreUnavailable:
            unsent = names
        else:
            self.note(f"sent {accepted.sent}, kept {accepted.kept}")
            if sorted([*accepted.sent, *accepted.kept]) != sorted(names):
                self.found.append(f"of {names} {accepted} is reported")
            for name in accepted.sent:
                if not any(name in here for here in self.accepted.values()):
                    self.found.append(f"{name} is reported as sent")
        if self._timeout is not None and self.loop.time() - began > self._most_seconds:
            self.found.append(f"a send took {self.loop.time() - began:.1f} s")
        done = {*names} - {*unsent}
        self.promised |= done
        self.unknown -= done
        if self.large & {*unsent}:
            # The application gives up what is refused, and all after it that was sent with it.
            return []
        return [each for each in messages if str(each.message_id) in unsent]

    @property
    def _most_seconds(self) -> float:
        seconds = self._timeout or 0.0
        # For the turn, and for each namespace.
        return seconds + 2 * (seconds + 1.5) + 8

    def _require(self, site: str, names: Sequence[str]) -> None:
        for name in names:
            if name not in self.accepted[site]:
                self.found.append(f"{name} is reported as accepted by {site}")

    def objections(self) -> list[str]:
        """Return what is wrong, once everything is sent."""
        found = [*self.found]
        everywhere = {*self.order}
        found += [f"{name} is lost" for name in sorted(self.promised - everywhere - self.discarded)]
        if self._kind == "passive":
            known = everywhere - self.doubtful - self.unknown
            if twice := sorted(name for name in known if self.order.count(name) > 1):
                found.append(f"{twice} are sent twice")
        first = [name for name in dict.fromkeys(self.order) if name in self.promised]
        for session, sent in self._sent.items():
            mine = [name for name in first if name.partition(".")[0] == session]
            if mine != sorted(mine, key=sent.index):
                found.append(f"{session}: in the order {mine}")
        return found
