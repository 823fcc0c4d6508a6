"""
The line before the send: received, restored, edited, stamped, routed, fitted.

1. Each step takes all messages of a batch that are still to be sent. The pipeline runs the steps in their order.
2. No step does I/O, except editors that are given a batch (`BatchEditor`).
3. A message that fails at any step is rejected (`shared.line.failure`).
4. Editors and routes have a limit on the time for each message. The work of the other steps grows linearly with the
   length of a message; between many messages, other tasks run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import batched

from shared.amqp.values import string
from shared.errors import MessageRejected
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch, Step
from shared.line.editor_steps import EditorSteps
from shared.line.envelopes import Envelopes
from shared.line.failure import Failure
from shared.line.item import Item, Original
from shared.line.recall import Recall
from shared.line.rejection import SHARE, TARGET, targets_in
from shared.line.routing import Target
from shared.line.states import WITH_FIRST, Rejection, Stage, State
from shared.line.task import Task
from shared.message.arrival import Arrival, Key
from shared.message.heartbeat import heartbeat_in
from shared.message.loop_prevention import path_before
from shared.message.message import Message
from shared.message.metadata import deterministic_id, stamp
from shared.printable import printable
from shared.protocols import Imprint, Journal, Outcome, Outgoing
from shared.time_limit import TimeLimit

_AT_ONCE = 1000
_EXPIRED = "it expired before it could be sent"


class Preparation:
    """The decisions of one task about its messages before they are sent."""

    def __init__(self, task: Task, journal: Journal, accepted: AcceptedSends) -> None:
        """Prepare for *task*; *accepted* has the messages that earlier deliveries have sent."""
        self._task = task
        self._journal = journal
        self._accepted = accepted
        self._failure = Failure(task.name, accepted)
        self._time_limit = TimeLimit(task.edit_seconds)
        self._envelopes = Envelopes(task, accepted, self._failure)
        self._editors = EditorSteps(task, accepted, self._failure, Recall(task, journal, accepted))

    def steps(self) -> list[Step]:
        """Return the steps after `receive`, in order."""
        return [
            *((Step("open", Stage.RECEIVED, self._envelopes.open),) if self._task.opens_envelopes else ()),
            self._each("restore", Stage.RECEIVED, self._restore),
            *self._editors.steps(),
            self._each("stamps", Stage.STAMPED, self._stamp),
            self._each("ttl", Stage.STAMPED, self._expire),
            Step("routes", Stage.ROUTED, self._route),
            Step("loop", Stage.ROUTED, self._guard),
            self._each("fit", Stage.FITTED, self._fit, State.ROUTED),
            Step("repeats", Stage.FITTED, _mirror_repeats),
        ]

    def receive(self, batch: Batch) -> None:
        """Read the messages of *batch*; called again, it starts over."""
        batch.clear()
        unread = Arrival(batch.origin)
        firsts: dict[Key, Item] = {}
        for position, (content, token) in enumerate(zip(batch.contents, batch.lock_tokens, strict=True), batch.first):
            original = Original(content, unread, position, token)
            item = Item(original)
            batch.parts[original] = [item]
            fault = None
            heartbeat = None
            try:
                message = Message.received(content, batch.origin)
                original.arrival = message.arrival
                item.key = message.arrival.key
                original.arrived = self._journal.arriving(message)
                item.message = message
                heartbeat = heartbeat_in(message)
            except MessageRejected as error:
                fault = error
                original.arrived = self._journal.unreadable(content)
            key = item.key
            if key is not None and (first := firsts.setdefault(key, item)) is not item:
                # Its lock ended while it waited in the host, and it was delivered again: the last lock is the one held.
                first.original.lock_token, original.lock_token = original.lock_token, None
                item.repeat(first)
            elif fault is not None:
                self._failure.reject(batch, item, fault, Stage.RECEIVED)
            elif heartbeat is not None:
                item.withhold(Outcome.FILTERED, f"a heartbeat of {printable(heartbeat.task)}", Stage.RECEIVED)
                batch.heartbeats[item] = heartbeat

    def _each(
        self, name: str, stage: Stage, work: Callable[[Batch, Item, Message], None], state: State = State.RECEIVED
    ) -> Step:
        """Return a step that does *work* with each message in a *state*, and rejects those that are at fault."""

        def some(batch: Batch, waiting: Iterable[tuple[Item, Message]]) -> None:
            for item, message in waiting:
                if item.state is not state:
                    continue  # another part of its message has failed
                try:
                    work(batch, item, message)
                except MessageRejected as error:
                    self._failure.reject(batch, item, error, stage)

        async def in_turns(batch: Batch, waiting: Sequence[tuple[Item, Message]]) -> None:
            for few in batched(waiting, _AT_ONCE, strict=False):
                some(batch, few)
                await asyncio.sleep(0)

        def run(batch: Batch) -> Awaitable[None] | None:
            waiting = batch.waiting(state)
            if len(waiting) > _AT_ONCE:
                return in_turns(batch, waiting)  # other tasks must have theirs
            some(batch, waiting)
            return None

        return Step(name, stage, run)

    def _restore(self, _: Batch, __: Item, message: Message) -> None:
        if self._task.restore is not None:
            self._task.restore(message)

    def _stamp(self, batch: Batch, item: Item, message: Message) -> None:
        visited = path_before(message)
        if visited:
            batch.visited[item] = visited
        stamp(message)

    def _expire(self, batch: Batch, item: Item, message: Message) -> None:
        life = self._task.time_to_live
        if not life.expires(message, batch.now):
            item.ends_at = life.end(message, batch.now)
        elif self._task.router.fans_out:
            batch.expired.add(item)  # some of its targets may have it
        else:
            item.withhold(Outcome.EXPIRED, _EXPIRED, Stage.STAMPED)

    def _route(self, batch: Batch) -> Awaitable[None] | None:
        waiting = (pair for pair in batch.waiting() if pair[0].state is State.RECEIVED)
        return self._time_limit.run(self._task.router.route, waiting, partial(self._put_route, batch))

    def _put_route(self, batch: Batch, item: Item, targets: Sequence[Target] | Exception) -> None:
        if isinstance(targets, MessageRejected):
            self._failure.reject(batch, item, targets, Stage.ROUTED)
        elif isinstance(targets, Exception):
            raise targets
        elif len(targets) > 1:
            self._fan_out(batch, item, targets)
        elif item in batch.expired:
            item.withhold(Outcome.EXPIRED, _EXPIRED, Stage.STAMPED)
        elif not targets:
            item.withhold(Outcome.FILTERED, "no route takes it", Stage.ROUTED)
        else:
            item.route(targets[0])

    def _fan_out(self, batch: Batch, item: Item, targets: Sequence[Target]) -> None:
        """Let each of *targets* have an item of its own, and finish those that an earlier delivery has sent."""
        requested = item.original.requested_share(self._task.name).target
        names = [str(target) for target in targets]
        wanted = None if requested is None else targets_in(requested, names)
        if requested is not None and wanted is None:
            description = (
                f"{TARGET} asks for {requested} only, but the route sends to {', '.join(names)};"
                " without this property it is sent to all of them"
            )
            self._failure.reject(batch, item, MessageRejected("NoSuchTarget", description), Stage.ROUTED)
            return
        if wanted is not None and item.message is not None:
            item.message.set_properties(dict.fromkeys(SHARE))  # the copies that have arrived are without
        is_expired, visited = item in batch.expired, batch.visited.get(item)
        copies = item.fan_out(targets)
        parts = batch.parts[item.original]
        place = parts.index(item)
        parts[place : place + 1] = copies
        for copy, target in zip(copies, targets, strict=True):
            if visited is not None:
                batch.visited[copy] = visited
            known = copy.known(self._accepted)
            if known is not None:
                copy.recall(known, self._accepted)
            elif wanted is not None and copy.only_for not in wanted:
                copy.withhold(Outcome.FILTERED, f"{TARGET} asks for {requested} only", Stage.ROUTED)
            elif is_expired:
                copy.withhold(Outcome.EXPIRED, _EXPIRED, Stage.STAMPED)
            else:
                copy.route(target)

    def _guard(self, batch: Batch) -> None:
        guard = self._task.loop_guard
        if guard is None:
            return
        for item, visited in batch.visited.items():
            target = item.target
            if item.state is State.ROUTED and target is not None:
                objection = guard.objection(visited, target.site)
                if objection is not None:
                    item.withhold(Outcome.LOOPED, objection, Stage.ROUTED)

    def _fit(self, batch: Batch, item: Item, message: Message) -> None:
        target, arrived = item.target, item.original.arrived
        if target is None:
            return
        try:
            if not message.has_message_id:
                identity = deterministic_id(message.arrival)
                message.message_id = None if identity is None else string(identity)
            if target.binding is not None or self._task.time_to_live.end(message, batch.now) != item.ends_at:
                item.ends_at = None  # the host sends it, or the action of its route has given it another life
            same = _fitted_alike(item, target)
            if same is None:
                outgoing = target.outgoing(message, None if item.part is None else item.part.number)
                same = outgoing, None if arrived is None else self._journal.departing(message, arrived)
            item.fit(*same)
        except MessageRejected as error:
            if not item.copies:
                raise
            # Its other targets get it: this one has refused it, as at the send.
            item.fail(Rejection(error, Stage.FITTED, self._task.name))


def _fitted_alike(item: Item, target: Target) -> tuple[Outgoing, Imprint | None] | None:
    """Return what another copy of *item* was fitted to, if *target* needs the same: one encoding serves both."""
    if target.texts is not None or target.binding is not None:
        return None
    for copy in item.copies:
        if copy.outgoing is not None and copy.target is not None:
            needs = copy.target.fit, copy.target.partition, copy.target.texts
            if needs == (target.fit, target.partition, None):
                return copy.outgoing, copy.departed
    return None


def _mirror_repeats(batch: Batch) -> None:
    """Give a repeated message as many parts as the first one has."""
    for original, [item, *_] in batch.parts.items():
        if item.state in WITH_FIRST and item.leader is not None:
            batch.parts[original] = [item.repeated(part) for part in batch.parts[item.leader.original]]
