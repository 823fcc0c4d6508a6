"""
Getting a batch to its targets: attempts until every message has its outcome or the time of the batch is over.

An attempt has three parts: what is to be sent goes to its targets, all of them side by side; what turns out to be at
fault is admitted to the rejects, as long as the task's run of rejects is not over its limit; what has been admitted is
set aside, in `rejects` or, for a task without one, in the dead-letter queue of its source.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.errors import BuswayError, LockLost, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.accepted import AcceptedSends, Key
from shared.line.deadline import RENEWAL_SECONDS, Hold
from shared.line.outages import Obstacles
from shared.line.reject_limit import RejectGuard
from shared.line.rejection import Rejection, Stage, set_aside, wrapped
from shared.line.routing import Target
from shared.message.message import Arrival, Message
from shared.protocols import Imprint, Joined, Locks, Outcome, Outgoing

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0
# A person has to act before it can go on, and people take longer than networks.
FIRST_REFUSED_WAIT_SECONDS = 1.0
LONGEST_REFUSED_WAIT_SECONDS = 60.0

_RUN_OF_REJECTS = "the run of rejects"


@dataclass(slots=True)
class Item:
    """One message of a batch on its way: what is known of it, where it is to go, what became of it."""

    content: bytes
    arrival: Arrival
    lock_token: bytes | None = None
    stage: Stage = Stage.RECEIVED
    key: Key | None = None
    outcome: Outcome | None = None
    target: Target | None = None
    outgoing: Outgoing | None = None
    message_id: str | None = None
    reason: str | None = None
    rejection: Rejection | None = None
    is_counted: bool = False
    is_set_aside: bool = False
    is_wrapped: bool = False
    is_dead_lettered: bool = False
    is_remembered: bool = False
    part: int | None = None
    arrived: Imprint | None = None
    departed: Imprint | None = None
    joined: Joined | None = None
    """How it shares what becomes of another item, among whose followers it is then; only that one is sent."""
    followers: "Sequence[Item]" = ()


class Dispatch:
    """The sending half of one task's line."""

    def __init__(
        self,
        task: str,
        rejects: Target | None,
        locks: Locks | None,
        obstacles: Obstacles,
        *,
        rejects_in_a_row: int | None,
    ) -> None:
        """Set messages at fault aside in *rejects*, or over *locks* in the source's dead-letter queue."""
        self.memory = AcceptedSends()
        self._task = task
        self._rejects = rejects
        self._locks = locks
        self._guard = RejectGuard(rejects_in_a_row)
        self._obstacles = obstacles

    async def carry(self, items: Sequence[Item], hold: Hold) -> BuswayError | None:
        """Attempt until every item has its outcome or *hold* is over; return what stood in the way of the rest."""
        attempts = 0
        repeats = _repeats(items)
        once = [item for item in items if id(item) not in repeats]
        try:
            await hold.begin()
            while True:
                obstacles = await self._attempt(once, hold)
                attempts += 1
                if not obstacles or all(isinstance(each, MessageRejected) for each in obstacles):
                    return next(iter(obstacles), None)
                if not await hold.pause(max(wait_seconds(each, attempts) for each in obstacles)):
                    return obstacles[0]
        except LockLost as error:
            return error
        finally:
            for item in items:
                if id(item) in repeats:
                    item.outcome, item.reason = repeats[id(item)].outcome, repeats[id(item)].reason
                    item.target = item.outgoing = None
                    item.is_remembered = item.outcome is not None
            self.memory.trim(len(items))

    async def renew(self, items: Sequence[Item], timeout_seconds: float) -> int:
        """Renew the locks of a batch; as `shared.protocols.Locks.renew`."""
        if self._locks is None:
            raise TargetRefused(f"{self._task}: its source has no locks, expected none to be renewed")
        tokens = {item.lock_token: None for item in items if item.lock_token and not item.is_dead_lettered}
        return await self._locks.renew(list(tokens), session_of(items), timeout_seconds=timeout_seconds)

    async def _attempt(self, items: Sequence[Item], hold: Hold) -> list[BuswayError]:
        """Do once what can be done; return what stood in the way, nothing when every item has its outcome."""
        # Two routes may have equal targets: what they send there keeps its order.
        by_target: dict[Target, list[Item]] = {}
        for item in items:
            if item.outcome is None and not item.is_set_aside and item.target is not None:
                by_target.setdefault(item.target, []).append(item)
        answers = await asyncio.gather(
            *(self._send(target, waiting, hold.attempt_seconds) for target, waiting in by_target.items())
        )
        # A list, because two targets may have one name: a hub by its keys and one of its partitions, or `rejects`.
        met = [(str(target), answer) for target, answer in zip(by_target, answers, strict=True)]
        met.append((_RUN_OF_REJECTS, self._admit(items)))
        # At once, whatever stands in the way of the others: what has been found out is not to be found out again.
        at_fault = [item for item in items if item.outcome is None and item.is_set_aside]
        if at_fault and self._rejects is not None:
            answer = await self._send_rejects(self._rejects, at_fault, items, hold.attempt_seconds)
            met.append((str(self._rejects), answer))
        elif at_fault:
            met.append((_dead_letter_queue(at_fault[0]), await self._dead_letter(at_fault, items)))
        # Of two with one name, the one that stands in the way is told.
        self._obstacles.note(dict(sorted(met, key=lambda each: each[1] is not None)))
        return [error for _, error in met if error is not None]

    async def _send(self, target: Target, waiting: Sequence[Item], timeout_seconds: float) -> BuswayError | None:
        """Send once to one target; note what it refuses, and return what kept it from taking the rest."""
        messages = [item.outgoing for item in waiting if item.outgoing is not None]
        answers = await target.output.send(target.entity, messages, timeout_seconds=timeout_seconds)
        obstacle = None
        for item, answer in zip(waiting, answers, strict=True):
            if answer is None:
                self._settle(item, Outcome.SENT)
            elif isinstance(answer, MessageRejected):
                item.stage = Stage.SENT
                item.reason = str(answer)
                item.rejection = Rejection(answer, item.stage, self._task)
            else:
                obstacle = obstacle or answer
        return obstacle

    # Messages at fault

    def _admit(self, items: Iterable[Item]) -> BuswayError | None:
        """Let what is at fault be set aside, in the order of the batch, until the run of rejects is too long."""
        for item in items:
            if item.is_counted:
                continue
            if item.outcome is not None:
                item.is_counted = True
                if item.outcome is not Outcome.REJECTED:
                    self._guard.saw_a_good_message()
            elif item.rejection is not None:
                if not self._guard.admits_one_at_fault():
                    return TargetRefused(
                        f"{self._task}: stopped, {self._guard.limit} messages in a row were at fault, expected a good"
                        f" one among them; it goes on with the first good message or a restart. The next: {item.reason}"
                    )
                item.is_counted = item.is_set_aside = True
                _set_aside_what_follows(item)
        return None

    async def _send_rejects(
        self, rejects: Target, at_fault: Sequence[Item], items: Sequence[Item], timeout_seconds: float
    ) -> BuswayError | None:
        """
        Send to `rejects`; what it does not take as it is goes there wrapped.

        What it takes in no form, being too large for it, goes to the dead-letter queue of the source, or stays.
        """
        for item in at_fault:
            if item.rejection is not None and item.target is not rejects:
                item.target = rejects
                item.outgoing = set_aside(rejects, item.content, item.arrival, item.rejection)
        waiting, obstacle = list(at_fault), None
        while waiting:
            messages = [item.outgoing for item in waiting if item.outgoing is not None]
            answers = await rejects.output.send(rejects.entity, messages, timeout_seconds=timeout_seconds)
            unwrapped = []
            for item, answer in zip(waiting, answers, strict=True):
                if answer is None:
                    self._settle(item, Outcome.REJECTED)
                elif not isinstance(answer, MessageRejected):
                    obstacle = obstacle or answer
                elif item.rejection is not None and not item.is_wrapped:
                    item.is_wrapped = True
                    item.outgoing = wrapped(rejects, item.content, item.arrival, item.rejection)
                    unwrapped.append(item)
                elif await self._dead_letter([item], items) is not None:
                    told = f"{rejects}: it takes rejected messages in no form, {answer.description}"
                    obstacle = obstacle or TargetRefused(told)
            waiting = unwrapped
        return obstacle

    async def _dead_letter(self, at_fault: Sequence[Item], items: Sequence[Item]) -> BuswayError | None:
        """
        Move messages to the dead-letter queue of their source, so that the rest of the batch can be completed.

        The host will complete all of the batch and be told that it holds no lock on these: it logs that and goes on.
        """
        settled = {item.lock_token for item in items if item.is_dead_lettered}
        for item in at_fault:
            if item.rejection is None:
                continue
            error, token = item.rejection.error, item.lock_token
            if self._locks is None or token is None:
                return error
            if token not in settled:
                description = f"{self._task}, {item.rejection.stage}: {error.description}"
                try:
                    await self._locks.dead_letter(
                        token, session_of(items), error.reason, description, timeout_seconds=RENEWAL_SECONDS
                    )
                except TargetRefused as refusal:
                    # Nothing is left but to let the source give the batch up, as it does without any of this.
                    error.add_note(str(refusal))
                    return error
                except LockLost:
                    raise
                except TargetUnavailable as unavailable:
                    return unavailable
                settled.add(token)
            item.is_dead_lettered = True
            self._settle(item, Outcome.REJECTED)
        return None

    def _settle(self, item: Item, outcome: Outcome) -> None:
        item.outcome = outcome
        if outcome is Outcome.SENT:
            # It was at fault at an earlier attempt, and the target has changed its mind.
            item.rejection = item.reason = None
            self._settle_what_follows(item)
        self.memory.remember(item.key, outcome)

    def _settle_what_follows(self, leader: Item) -> None:
        for follower in leader.followers:
            follow(follower, leader)
            if follower.outcome is not None:
                self.memory.remember(follower.key, follower.outcome)
            # One editor may have joined another message to it before it was itself joined by a second one.
            self._settle_what_follows(follower)


def _set_aside_what_follows(leader: Item) -> None:
    """Set aside what is joined to a message that is, each by itself."""
    for follower in leader.followers:
        follower.joined, follower.stage, follower.reason = None, leader.stage, leader.reason
        follower.rejection = leader.rejection
        follower.is_counted = follower.is_set_aside = True
        _set_aside_what_follows(follower)
    leader.followers = ()


def follow(follower: Item, leader: Item) -> None:
    """Let an item that is joined to another one share what has become of that."""
    joined = follower.joined
    if leader.outcome is Outcome.SENT and joined is not None and joined.outcome is not Outcome.SENT:
        follower.outcome, follower.reason, follower.departed = joined.outcome, joined.reason, None
        return
    follower.outcome, follower.reason, follower.stage = leader.outcome, leader.reason, leader.stage
    follower.target, follower.departed, follower.is_remembered = leader.target, leader.departed, leader.is_remembered


def _repeats(items: Sequence[Item]) -> dict[int, Item]:
    """
    Return, by the identity of each item that is the same message once more, the first of that message.

    That happens when locks end while messages wait in a host that stands still: they are delivered again, and the batch
    has both. The first is carried, with the last lock, which is the one that holds.
    """
    firsts: dict[Key, Item] = {}
    repeats: dict[int, Item] = {}
    for item in items:
        if item.key is None:
            continue
        first = firsts.setdefault(item.key, item)
        if first is not item:
            repeats[id(item)] = first
            first.lock_token, item.lock_token = item.lock_token, None
    return repeats


def session_of(items: Sequence[Item]) -> str | None:
    """Return the session of a batch, which is that of each of its messages; None where none can be read or has one."""
    for item in items:
        try:
            session_id = Message.received(item.content, item.arrival.origin).session_id
        except MessageRejected:
            continue
        if session_id is not None:
            return session_id
    return None


def place_of(item: Item) -> str | None:
    """Return where a message went or is to go, None where it goes nowhere."""
    if item.is_dead_lettered:
        return _dead_letter_queue(item)
    return None if item.target is None else str(item.target)


def _dead_letter_queue(item: Item) -> str:
    return f"{item.arrival.origin.site}/{item.arrival.origin.entity}/$DeadLetterQueue"


def wait_seconds(obstacle: BuswayError, attempts: int) -> float:
    """Return how long to wait after so many *attempts*, the last of which met *obstacle*."""
    if isinstance(obstacle, TargetUnavailable):
        asked = obstacle.retry_after.total_seconds() if obstacle.retry_after is not None else 0.0
        return max(asked, _growing(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, attempts))
    return _growing(FIRST_REFUSED_WAIT_SECONDS, LONGEST_REFUSED_WAIT_SECONDS, attempts)


def _growing(first: float, longest: float, attempts: int) -> float:
    return float(min(first * 2 ** min(attempts - 1, 20), longest))
