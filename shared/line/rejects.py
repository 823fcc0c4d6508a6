"""
Where rejected messages go: to `rejects`, or to the dead-letter queue of the source.

1. The reject limit counts them first, in the order of the batch. A task stops before it moves its whole source there.
2. `rejects` gets a message as it was received, or wrapped if it refuses that. If it refuses both forms, the message
   goes to the dead-letter queue of the source, or stays at the source.
3. A task without `rejects` dead-letters the message alone, through the host, which then completes the others. The
   source no longer delivers it: the other parts and targets of the message have their results before, and all of them
   are on record.
"""

from collections.abc import Sequence

from shared.amqp.sections import split
from shared.amqp.values import Malformed
from shared.errors import BuswayError, MessageRejected, TargetRefused
from shared.line.accepted_sends import AcceptedSends
from shared.line.deadline import Deadline
from shared.line.envelopes import to_set_aside
from shared.line.item import Item
from shared.line.locks import Locks
from shared.line.rejection import set_aside, wrapped
from shared.line.routing import Target
from shared.line.states import AT_FAULT, OUTCOMES, TO_REJECTS, TO_TARGET, Rejection, Stage, State
from shared.line.task import Task
from shared.protocols import Outcome

_REJECTED_OR_LEFT = (Outcome.REJECTED, Outcome.RETRY)
_GOOD = frozenset(
    (State.HANDED_OVER, *(state for state, outcome in OUTCOMES.items() if outcome not in _REJECTED_OR_LEFT))
)


_MOST_BY_TASK, _MOST_BY_TARGET = 100, 10
# Application properties and annotations of a message.
_MOST_HEADER_BYTES = 64 * 1024
# The names of the properties of a dead letter, and its annotations.
_DEAD_LETTER_BYTES = 256
_NEVER_FULL = 32 * 1024


class RejectLimit:
    """
    Compares the number of rejected messages of one task with the number of good ones.

    Without a good message *limit* messages may be rejected. Each good one adds that number again, up to 100 times the
    limit; for messages that a target refuses, up to 10 times, because a target may begin to refuse at any time. The
    count belongs to this process: a restart begins at zero.

    A task should stop if it has a fault itself, which starts with a restart, or if its target has one. A producer of
    bad messages must not stop it for the others: each good message allows as many bad ones as the limit.
    """

    def __init__(self, limit: int | None) -> None:
        """Admit *limit* rejected messages for each good one, None for any number."""
        self._limit = limit
        self._credit = limit or 0
        self.in_a_row = 0
        """Rejected messages since the last good one."""

    def good(self, messages: int) -> None:
        """Count *messages* that are not rejected."""
        if messages:
            self.in_a_row = 0
            if self._limit is not None:
                self._credit = min(self._credit + messages * self._limit, _MOST_BY_TASK * self._limit)

    def admit(self, *, by_target: bool) -> bool:
        """Return whether one more message may be rejected, and count it if so; a target may have refused it."""
        if self._limit is not None:
            if self._credit <= 0 or (by_target and self.in_a_row >= _MOST_BY_TARGET * self._limit):
                return False
            self._credit -= 1
        self.in_a_row += 1
        return True


class Rejects:
    """Sends or dead-letters the rejected messages of one task."""

    def __init__(self, task: Task, accepted: AcceptedSends) -> None:
        """Remember the rejected messages in *accepted*."""
        self._task = task.name
        self._rejects = task.rejects
        self._limit = RejectLimit(task.rejects_in_a_row)
        self._accepted = accepted

    def admit(self, uncounted: list[Item]) -> BuswayError | None:
        """Admit failed messages to be set aside, in the order of the batch; remove counted ones from *uncounted*."""
        others = [item for item in uncounted if item.state not in _GOOD]
        # Also those accepted in an earlier delivery, and those behind what is at fault.
        self._limit.good(len(uncounted) - len(others))
        waiting: list[Item] = []
        error = None
        for item in others:
            if item.state in AT_FAULT and error is None:
                by_target = item.rejection is not None and item.rejection.stage is Stage.SENT
                if self._limit.admit(by_target=by_target):
                    item.admit()
                    continue
                error = TargetRefused(
                    f"{self._task}: stopped after {self._limit.in_a_row} rejected messages in a row; it continues"
                    f" after a message that is not rejected, or a restart. The next is rejected too: {item.reason}"
                )
            if item.state not in TO_REJECTS and item.outcome is None:
                waiting.append(item)
        uncounted[:] = waiting
        return error

    async def send(self, items: Sequence[Item], deadline: Deadline) -> tuple[str, BuswayError | None] | None:
        """Set aside the admitted messages of *items*; return where, and the error; None without any."""
        at_fault = [item for item in items if item.state in TO_REJECTS]
        if not at_fault:
            return None
        if self._rejects is None:
            waiting = {item.original.lock_token for item in items if item.state in TO_TARGET | AT_FAULT}
            ready = [item for item in at_fault if item.original.lock_token not in waiting]
            stuck = next(filter(None, (_give_up(item, deadline) for item in ready)), None)
            return None if stuck is None else (dead_letter_queue(at_fault[0]), stuck)
        error = await self._send_rejects(self._rejects, at_fault, deadline)
        return str(self._rejects), error

    async def _send_rejects(self, rejects: Target, at_fault: Sequence[Item], deadline: Deadline) -> BuswayError | None:
        timeout_seconds = deadline.attempt_seconds
        for item in at_fault:
            if item.state is State.SET_ASIDE and item.rejection is not None:
                item.address(
                    rejects, set_aside(rejects, to_set_aside(item.original), item.arrival, item.rejection, item.extent)
                )
        waiting, error = list(at_fault), None
        while waiting:
            messages = [item.outgoing for item in waiting if item.outgoing is not None]
            answers = await rejects.output.send(rejects.entity, messages, timeout_seconds=timeout_seconds)
            refused = []
            for item, answer in zip(waiting, answers, strict=True):
                if answer is None:
                    item.become(State.REJECTED)
                    self._accepted.remember(item.key, Outcome.REJECTED)
                elif not isinstance(answer, MessageRejected):
                    error = error or answer
                elif item.rejection is not None and item.state is State.ADDRESSED:
                    item.wrap(wrapped(rejects, to_set_aside(item.original), item.arrival, item.rejection, item.extent))
                    refused.append(item)
                elif _give_up(item, deadline) is not None:
                    description = f"{rejects}: refuses rejected messages in every form, {answer.description}"
                    error = error or TargetRefused(description)
            waiting = refused
        return error


def _give_up(item: Item, deadline: Deadline) -> BuswayError | None:
    """Let *item* go to the dead-letter queue of its source once that is on record; return an error without one."""
    if deadline.locks is None or item.original.lock_token is None:
        return _stuck(item, "its source has no dead-letter queue")
    item.become(State.DEAD_LETTERED)
    return None


async def dead_letter(given_up: Sequence[Item], locks: Locks) -> None:
    """
    Move a message to the dead-letter queue of its source; *given_up* are all of its items that are DEAD_LETTERED.

    Raises:  TargetUnavailable, LockLost, TargetRefused.
    """
    first, token = given_up[0], given_up[0].original.lock_token
    if first.rejection is None or token is None:
        return
    shares = [item.only_for or f"part {item.number}" for item in given_up if item.number is not None]
    try:
        await locks.dead_letter(token, *_texts(first.rejection, first, shares))
    except TargetRefused as refusal:
        # The last resort: the source gives the message up itself, after its last delivery. Waiting until then
        # costs its neighbours a delivery for each lock, failing at once would cost them all within seconds.
        raise _stuck(first, str(refusal)) from refusal


def _stuck(item: Item, reason: str) -> TargetRefused:
    return TargetRefused(f"{dead_letter_queue(item)}: the message cannot be moved there, {reason}: {item.reason}")


def dead_letter_queue(item: Item) -> str:
    """Return the dead-letter queue of the source of *item*."""
    return f"{item.arrival.origin.site}/{item.arrival.origin.entity}/$DeadLetterQueue"


def _texts(rejection: Rejection, item: Item, shares: Sequence[str]) -> tuple[str, str]:
    """
    Return the reason and the description of a dead letter: task, stage, the parts or targets refused, and the error.

    Only what its headers have room for: the service cannot process a dead letter with larger ones, and does not say why
    (azure-sdk-for-js issue 4910).
    """
    reason = rejection.error.reason
    where = "".join(f", {share}" for share in shares)
    text = f"{rejection.task}, {rejection.stage}{where}: {rejection.error.description}"
    content = to_set_aside(item.original)
    if len(content) < _NEVER_FULL:
        return reason, text
    try:
        raw = split(content)
    except Malformed:
        return reason, text
    taken = len(raw.application_properties) + len(raw.message_annotations) + len(reason.encode()) + _DEAD_LETTER_BYTES
    room = _MOST_HEADER_BYTES - taken
    return (reason, text.encode("utf-8", "replace")[:room].decode("utf-8", "ignore")) if room > 0 else ("", "")
