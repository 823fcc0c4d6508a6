"""
The states of a message on the line, and the table of all transitions.

An `Item` (`shared.line.item`) is one received message, or one of its parts after an editor has split it.

1. An item changes its state only in a method of `Item`, which sets the data that belongs to the new state.
2. `FROM` is complete. A transition that it does not list raises `IllegalTransitionError`: a fault in Busway.
3. A terminal state has exactly one `Outcome` (`OUTCOMES`). Nothing leaves a terminal state.
4. Before the send an item waits, is withheld, fails, or is ready. An item that fails is never sent.
5. A joined item is contained in another one, its leader, and shares its result. If the leader is set aside, each of its
   followers is set aside as it was received.
6. A repeated item is a message that is in the batch twice, a copied one a message that came in two envelopes. It gets
   the result of the first.
7. A failed or refused item leaves the source only through `SET_ASIDE`, after the reject limit has counted it.
8. At the end of a batch every item that has no result is left at the source, and will be delivered again.

`python -m shared.line.states` prints the table. `docs/contribute/line.md` shows it.
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
    """An editor has put it into another item, or its result is tied to one that has failed."""
    REPEATED = "repeated"
    """The batch has held it before; it gets the result of the first."""
    COPIED = "copied"
    """The batch has held it before, in another envelope; it gets the result of the first."""
    FAILED = "failed"
    """A step of the line, or a sibling part, is at fault; it is never sent to its target."""
    HANDED_OVER = "handed over"
    """Its text is kept for the host, which is asked to send it once the whole delivery has succeeded."""
    REFUSED = "refused"
    """Its target has refused it; it is offered again until the reject limit lets it be set aside."""
    SET_ASIDE = "set aside"
    """The reject limit has counted it, or its leader; its reject is not made yet."""
    ADDRESSED = "addressed"
    """Its reject holds it as it was received, and will be sent."""
    WRAPPED = "wrapped"
    """`rejects` has refused that; its reject holds all its bytes as a body."""
    SENT = "sent"
    """Its target has accepted it, or its leader."""
    FILTERED = "filtered"
    """An editor, the routes, or its leader withhold it."""
    LOOPED = "looped"
    EXPIRED = "expired"
    REJECTED = "rejected"
    """It is in `rejects`."""
    DEAD_LETTERED = "dead-lettered"
    """Once that is on record, it is moved to the dead-letter queue of its source."""
    SENT_BEFORE = "sent before"
    """An earlier delivery of the batch, or the same message earlier in the batch, has got this result."""
    SENT_AS_COPY = "sent as copy"
    """Another copy of it was sent, which came in another envelope."""
    FILTERED_BEFORE = "filtered before"
    REJECTED_BEFORE = "rejected before"
    LEFT = "left"
    """It stays at its source."""

    __hash__ = str.__hash__


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

FROM: dict[State, tuple[State, ...]] = {
    State.RECEIVED: (),
    State.ROUTED: (State.RECEIVED,),
    State.READY: (State.ROUTED,),
    State.JOINED: (State.RECEIVED, State.ROUTED, State.READY, State.JOINED),
    State.REPEATED: (State.RECEIVED,),
    State.COPIED: (State.RECEIVED,),
    State.FAILED: (State.RECEIVED, State.ROUTED, State.READY, State.JOINED),
    State.HANDED_OVER: (State.READY,),
    State.REFUSED: (State.READY, State.REFUSED),
    State.SET_ASIDE: (State.FAILED, State.REFUSED, State.JOINED),
    State.ADDRESSED: (State.SET_ASIDE,),
    State.WRAPPED: (State.ADDRESSED,),
    State.SENT: (State.READY, State.REFUSED, State.HANDED_OVER, State.JOINED),
    State.FILTERED: (State.RECEIVED, State.JOINED),
    State.LOOPED: (State.ROUTED, State.JOINED, State.REPEATED, State.COPIED),
    State.EXPIRED: (State.RECEIVED, State.JOINED, State.REPEATED, State.COPIED),
    State.REJECTED: (State.ADDRESSED, State.WRAPPED),
    State.DEAD_LETTERED: (State.SET_ASIDE, State.WRAPPED),
    State.SENT_BEFORE: (State.RECEIVED, State.REPEATED),
    State.SENT_AS_COPY: (State.RECEIVED, State.COPIED),
    State.FILTERED_BEFORE: (State.RECEIVED, State.REPEATED, State.COPIED),
    State.REJECTED_BEFORE: (State.RECEIVED, State.REPEATED, State.COPIED),
    State.LEFT: tuple(state for state in State if state not in OUTCOMES),
}
"""The states before each state."""

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


class IllegalTransitionError(Exception):
    """A transition that the table does not have: a fault in Busway."""


def lines() -> list[str]:
    """Return the table as text: each state with the states before it, and the outcome of a terminal one."""
    text = [f"{'state':<16} {'outcome':<9} after"]
    for state, before in FROM.items():
        outcome = OUTCOMES.get(state, "")
        after = "any that is not terminal" if state is State.LEFT else ", ".join(before)
        text.append(f"{state:<16} {outcome:<9} {after}".rstrip())
    return text


if __name__ == "__main__":
    print("\n".join(lines()))  # noqa: T201 - what it is run for
