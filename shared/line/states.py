"""
The states of a message on the line, the events that change them, and the table of all transitions.

An `Item` (`shared.line.item`) is one received message, or one of its parts after an editor has split it.

1. An item changes its state only by an event: a method of `Item`. Data that belongs to a state is set by the event.
2. `TRANSITIONS` is complete. An event that it does not list raises `IllegalTransitionError`: a fault in Busway.
3. A terminal state has exactly one `Outcome` (`OUTCOMES`). Nothing leaves a terminal state.
4. Before the send an item waits, is withheld, fails, or is ready. An item that fails is never sent.
5. A joined item is contained in another one, its leader, and shares its result. If the leader is set aside, each of its
   followers is set aside as it was received.
6. A repeated item is a message that is in the batch twice, a copied one a message that came in two envelopes. It gets
   the result of the first.
7. A failed or refused item leaves the source only through `SET_ASIDE`, after the reject limit has counted it.
8. At the end of a batch every item that has no result is left at the source, and will be delivered again.

`python -m shared.line.states` prints the table. `docs/specs/line.md` shows it.
"""

from enum import StrEnum
from typing import NamedTuple

from shared.errors import MessageRejected
from shared.protocols import Outcome


class Stage(StrEnum):
    """The part of the line that a step belongs to, as rejects and journals name it."""

    RECEIVED = "received"
    EDITED = "edited"
    STAMPED = "stamped"
    ROUTED = "routed"
    FITTED = "fitted"
    SENT = "sent"


class Rejection(NamedTuple):
    """The reason for a rejection, with the stage and the task."""

    error: MessageRejected
    stage: Stage
    task: str


class State(StrEnum):
    """Where a message is on the line."""

    RECEIVED = "received"
    """Nothing is decided; the editors are given it."""
    ROUTED = "routed"
    """Its target is known."""
    READY = "ready"
    """It is encoded for its target and will be sent."""
    JOINED = "joined"
    """Another item contains it; it shares the result of that one."""
    REPEATED = "repeated"
    """The batch has held it before; it gets the result of the first."""
    COPIED = "copied"
    """The batch has held it before, in another envelope; it gets the result of the first."""
    FAILED = "failed"
    """It is at fault, found before the send; it is never sent to its target."""
    HANDED_OVER = "handed over"
    """Its text is kept for the host, which is asked to send it once the whole batch has succeeded."""
    REFUSED = "refused"
    """Its target has refused it; it is offered again until the reject limit lets it be set aside."""
    SET_ASIDE = "set aside"
    """The reject limit has counted it, or its leader; its reject is not made yet."""
    ADDRESSED = "addressed"
    """Its reject holds it as it was received, and will be sent."""
    WRAPPED = "wrapped"
    """`rejects` has refused that; its reject holds all its bytes as a body."""
    SENT = "sent"
    FILTERED = "filtered"
    LOOPED = "looped"
    EXPIRED = "expired"
    REJECTED = "rejected"
    """It is in `rejects`."""
    DEAD_LETTERED = "dead-lettered"
    """It is in the dead-letter queue of its source."""
    SENT_BEFORE = "sent before"
    """An earlier delivery of the batch, or the same message earlier in the batch, has got this result."""
    SENT_AS_COPY = "sent as copy"
    """Another copy of it was sent, which came in another envelope."""
    FILTERED_BEFORE = "filtered before"
    REJECTED_BEFORE = "rejected before"
    LEFT = "left"
    """It stays at its source."""

    __hash__ = str.__hash__


class Event(StrEnum):
    """What happens to a message."""

    REPEAT = "repeat"
    """It is found to be in the batch twice."""
    COPY = "copy"
    """It is found to be in the batch twice, in two envelopes."""
    RECALL_SENT = "recall sent"
    """Its result is known already."""
    RECALL_COPY = "recall copy"
    """Another copy of it is known to be sent."""
    RECALL_FILTERED = "recall filtered"
    RECALL_REJECTED = "recall rejected"
    JOIN = "join"
    """An editor puts it into another item, or its result is tied to one that has failed."""
    FILTER = "filter"
    """An editor, the routes, or its leader withhold it."""
    LOOP = "loop"
    EXPIRE = "expire"
    FAIL = "fail"
    """A step of the line, or a sibling part, is at fault."""
    ROUTE = "route"
    FIT = "fit"
    ACCEPT = "accept"
    """Its target has accepted it, or its leader."""
    HAND_OVER = "hand over"
    """An output binding keeps it for the host."""
    REFUSE = "refuse"
    """Its target does not take this message."""
    ADMIT = "admit"
    """The reject limit lets it, or its leader, be set aside."""
    ADDRESS = "address"
    WRAP = "wrap"
    STORE = "store"
    """`rejects` has accepted it."""
    DEAD_LETTER = "dead-letter"
    LEAVE = "leave"
    """The batch is over."""

    __hash__ = str.__hash__


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.RECEIVED: {
        Event.REPEAT: State.REPEATED,
        Event.COPY: State.COPIED,
        Event.RECALL_SENT: State.SENT_BEFORE,
        Event.RECALL_COPY: State.SENT_AS_COPY,
        Event.RECALL_FILTERED: State.FILTERED_BEFORE,
        Event.RECALL_REJECTED: State.REJECTED_BEFORE,
        Event.JOIN: State.JOINED,
        Event.FILTER: State.FILTERED,
        Event.EXPIRE: State.EXPIRED,
        Event.FAIL: State.FAILED,
        Event.ROUTE: State.ROUTED,
        Event.LEAVE: State.LEFT,
    },
    State.ROUTED: {
        Event.JOIN: State.JOINED,
        Event.LOOP: State.LOOPED,
        Event.FAIL: State.FAILED,
        Event.FIT: State.READY,
        Event.LEAVE: State.LEFT,
    },
    State.READY: {
        Event.JOIN: State.JOINED,
        Event.FAIL: State.FAILED,
        Event.ACCEPT: State.SENT,
        Event.HAND_OVER: State.HANDED_OVER,
        Event.REFUSE: State.REFUSED,
        Event.LEAVE: State.LEFT,
    },
    State.HANDED_OVER: {
        Event.ACCEPT: State.SENT,
        Event.LEAVE: State.LEFT,
    },
    State.JOINED: {
        Event.JOIN: State.JOINED,
        Event.FILTER: State.FILTERED,
        Event.LOOP: State.LOOPED,
        Event.EXPIRE: State.EXPIRED,
        Event.FAIL: State.FAILED,
        Event.ACCEPT: State.SENT,
        Event.ADMIT: State.SET_ASIDE,
        Event.LEAVE: State.LEFT,
    },
    State.REPEATED: {
        Event.RECALL_SENT: State.SENT_BEFORE,
        Event.RECALL_FILTERED: State.FILTERED_BEFORE,
        Event.RECALL_REJECTED: State.REJECTED_BEFORE,
        Event.LOOP: State.LOOPED,
        Event.EXPIRE: State.EXPIRED,
        Event.LEAVE: State.LEFT,
    },
    State.COPIED: {
        Event.RECALL_SENT: State.SENT_AS_COPY,
        Event.RECALL_FILTERED: State.FILTERED_BEFORE,
        Event.RECALL_REJECTED: State.REJECTED_BEFORE,
        Event.LOOP: State.LOOPED,
        Event.EXPIRE: State.EXPIRED,
        Event.LEAVE: State.LEFT,
    },
    State.FAILED: {
        Event.ADMIT: State.SET_ASIDE,
        Event.LEAVE: State.LEFT,
    },
    State.REFUSED: {
        Event.ACCEPT: State.SENT,
        Event.REFUSE: State.REFUSED,
        Event.ADMIT: State.SET_ASIDE,
        Event.LEAVE: State.LEFT,
    },
    State.SET_ASIDE: {
        Event.ADDRESS: State.ADDRESSED,
        Event.DEAD_LETTER: State.DEAD_LETTERED,
        Event.LEAVE: State.LEFT,
    },
    State.ADDRESSED: {
        Event.STORE: State.REJECTED,
        Event.WRAP: State.WRAPPED,
        Event.LEAVE: State.LEFT,
    },
    State.WRAPPED: {
        Event.STORE: State.REJECTED,
        Event.DEAD_LETTER: State.DEAD_LETTERED,
        Event.LEAVE: State.LEFT,
    },
}
"""The next state, by the state and the event."""

OUTCOMES: dict[State, Outcome] = {
    State.SENT: Outcome.SENT,
    State.SENT_BEFORE: Outcome.SENT,
    State.SENT_AS_COPY: Outcome.SENT,
    State.FILTERED: Outcome.FILTERED,
    State.FILTERED_BEFORE: Outcome.FILTERED,
    State.LOOPED: Outcome.LOOPED,
    State.EXPIRED: Outcome.EXPIRED,
    State.REJECTED: Outcome.REJECTED,
    State.REJECTED_BEFORE: Outcome.REJECTED,
    State.DEAD_LETTERED: Outcome.REJECTED,
    State.LEFT: Outcome.RETRY,
}
"""The outcome of each terminal state."""

KNOWN_BEFORE = frozenset((State.SENT_BEFORE, State.SENT_AS_COPY, State.FILTERED_BEFORE, State.REJECTED_BEFORE))
"""Nothing was sent now: the result is that of an earlier delivery or of the first of several."""
WITH_FIRST = frozenset((State.REPEATED, State.COPIED))
"""What gets the result of the first of several."""
TO_TARGET = frozenset((State.READY, State.REFUSED))
"""What is sent to a target."""
AT_FAULT = frozenset((State.FAILED, State.REFUSED))
"""What the reject limit has not counted yet."""
TO_REJECTS = frozenset((State.SET_ASIDE, State.ADDRESSED, State.WRAPPED))
"""What is on its way to `rejects` or the dead-letter queue."""

WITHHOLDING = {Outcome.FILTERED: Event.FILTER, Outcome.LOOPED: Event.LOOP, Outcome.EXPIRED: Event.EXPIRE}
RECALLING = {
    Outcome.SENT: Event.RECALL_SENT,
    Outcome.FILTERED: Event.RECALL_FILTERED,
    Outcome.REJECTED: Event.RECALL_REJECTED,
}


class IllegalTransitionError(Exception):
    """An event that the state of a message does not allow: a fault in Busway."""


class _Transitions(dict[State, State]):
    """The next state by current state, for one event."""

    def __init__(self, event: Event) -> None:
        super().__init__({state: row[event] for state, row in TRANSITIONS.items() if event in row})
        self._event = event

    def __missing__(self, state: State) -> State:
        raise IllegalTransitionError(f"a message that is {state!s} cannot {self._event!s}")


AFTER = {event: _Transitions(event) for event in Event}
"""The next state, by the event and the state; an illegal transition raises."""


def lines() -> list[str]:
    """Return the table as text: each state with its events and what follows."""
    text = [f"{'state':<16} {'event':<16} next state"]
    for state in State:
        row = TRANSITIONS.get(state)
        if row is None:
            text.append(f"{state:<16} {'(terminal)':<16} outcome {OUTCOMES[state]}")
            continue
        for number, (event, after) in enumerate(row.items()):
            text.append(f"{'' if number else state:<16} {event:<16} {after}")
    return text


if __name__ == "__main__":
    print("\n".join(lines()))  # noqa: T201 - what it is run for
