"""
A message on the line: its data, and the changes of its state (`shared.line.states`).

A message has one number, the place of its delivery's message (`Original.position`), and within that a number for each
item that it has become (`Item.number`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from shared.line.accepted_sends import AcceptedSends
from shared.line.rejection import Part, Share, requested_share
from shared.line.routing import Target
from shared.line.states import FROM, KNOWN_BEFORE, OUTCOMES, IllegalTransitionError, Rejection, Stage, State
from shared.message.arrival import Arrival, CarriedEvent, Key
from shared.message.message import Message
from shared.message.ttl import MIN_MILLISECONDS, shortened
from shared.protocols import Imprint, Joined, Outcome, Outgoing

_STAGES = {State.ROUTED: Stage.ROUTED, State.READY: Stage.FITTED}
"""The stage that a message without a result has got to, where it is not `edited` or that of its rejection."""
_WITHHELD = {Outcome.FILTERED: State.FILTERED, Outcome.LOOPED: State.LOOPED, Outcome.EXPIRED: State.EXPIRED}
_BY_WEIGHT = (Outcome.RETRY, Outcome.REJECTED, Outcome.SENT)
_KNOWN = {
    Outcome.SENT: State.SENT_BEFORE,
    Outcome.FILTERED: State.FILTERED_BEFORE,
    Outcome.REJECTED: State.REJECTED_BEFORE,
}


class Carrier(NamedTuple):
    """An envelope as it was received, and what is read once for all messages in it."""

    content: bytes
    messages: int
    empty: Message
    """The envelope without its body."""
    share: Share
    """What a replay asks for."""


class Original(Struct, eq=False):
    """A message as it came, alone or in an envelope: no step changes it."""

    content: bytes
    """Of a message from an envelope, its own bytes."""
    arrival: Arrival
    position: int
    """Its place in the delivery; of a message from an envelope, that of the envelope."""
    lock_token: bytes | None = None
    carrier: Carrier | None = None
    """The envelope that it came in."""
    arrived: Imprint | None = None

    # A Struct would show the body of the message.
    __repr__ = object.__repr__

    def requested_share(self, task: str) -> Share:
        """Return what a replay for *task* requests."""
        if self.carrier is not None:
            return self.carrier.share
        return requested_share(self.content, self.arrival, task)


class Item(Struct, eq=False):
    """One message of a batch, or one of its parts, with what the line has made of it."""

    original: Original
    state: State = State.RECEIVED
    key: Key | None = None
    """What identifies it at every delivery, None without a sequence number."""
    event_key: Key | None = None
    """What identifies a message from an envelope in every envelope."""
    part: Part | None = None
    """Its place among the parts of its message, None for a whole message."""
    only_for: str | None = None
    """The target that it is for, as site and entity, if its message has several."""
    copies: Sequence["Item"] = ()
    """All items of the same message or part, one for each of its targets, if there are several."""
    number: int | None = None
    """Its number among all that its delivered message has become, None if it is the only one."""
    message: Message | None = None
    """As the steps have left it; None if it cannot be read, and once it is encoded."""
    departed: Imprint | None = None
    target: Target | None = None
    outgoing: Outgoing | None = None
    reason: str | None = None
    stage: Stage | None = None
    """The stage that has withheld it or at which it was left; that of a rejected one is in the rejection."""
    rejection: Rejection | None = None
    leader: "Item | None" = None
    """The item whose result it shares: the one that it is joined to, or the first of several that are the same."""
    joined: Joined | None = None
    followers: Sequence["Item"] = ()
    """What is joined to it."""
    ends_at: int | None = None
    """When its copy ends, in milliseconds since 1970, if it must not live longer where it waits for its target."""
    is_recorded: bool = False
    """Whether the journal has its result, or will have it before its source is settled."""

    __repr__ = object.__repr__

    @property
    def content(self) -> bytes:
        """The message as the host handed it over."""
        return self.original.content

    @property
    def arrival(self) -> Arrival:
        """What the service reported with it; only the origin if the message cannot be read."""
        return self.original.arrival

    @property
    def extent(self) -> Share:
        """What it is of its message."""
        return Share(self.part, self.only_for)

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of a terminal state, None before."""
        return OUTCOMES.get(self.state)

    @property
    def is_share(self) -> bool:
        """Whether its message has others: parts, or copies for other targets."""
        return self.part is not None or self.only_for is not None

    @property
    def common_outcome(self) -> Outcome | None:
        """The outcome of all its copies, or its own: None unless all have one, sent if no target has refused it."""
        outcomes = {copy.outcome for copy in self.copies or (self,)}
        if None in outcomes:
            return None
        return next((one for one in _BY_WEIGHT if one in outcomes), self.outcome)

    @property
    def is_remembered(self) -> bool:
        """Whether the result was known before."""
        return self.state in KNOWN_BEFORE

    def known(self, accepted: AcceptedSends) -> Outcome | None:
        """Return its result from an earlier delivery, or None."""
        known = accepted.outcome(self.key)
        return known if known is not None or self.event_key is None else accepted.outcome(self.event_key)

    def split(self, message: Message) -> "Item":
        """Return one more part of the same received message."""
        return Item(self.original, key=self.key, event_key=self.event_key, message=message)

    def fan_out(self, targets: Sequence[Target]) -> Sequence["Item"]:
        """Return an item for each of several *targets*, the first of which is this one; nothing is joined to it."""
        message, key, event_key = self.message, self.key, self.event_key
        if message is None or self.followers:
            raise IllegalTransitionError("a message that is joined or encoded cannot be copied")
        self.copies = [self, *(self.split(message.copy()) for _ in targets[1:])]
        for copy, target in zip(self.copies, targets, strict=True):
            copy.part, copy.copies, copy.only_for, copy.ends_at = self.part, self.copies, str(target), self.ends_at
            copy.key = None if key is None else (*key, copy.only_for)
            copy.event_key = None if event_key is None else (*event_key, copy.only_for)
        return self.copies

    def opened(self, event: CarriedEvent, content: bytes, message: Message, carrier: Carrier) -> "Item":
        """Return an item for a message in this envelope: that of *event*, with the bytes *content*."""
        envelope = self.original
        original = Original(
            content, message.arrival, envelope.position, envelope.lock_token, carrier, arrived=envelope.arrived
        )
        return Item(original, key=message.arrival.key, event_key=event, message=message)

    def repeated(self, first: "Item") -> "Item":
        """Return an item that repeats *first*, a part of the message that this item repeats."""
        original, other = self.original, first.original
        if original.carrier is None and other.carrier is not None:
            position, token = original.position, original.lock_token
            original = Original(other.content, other.arrival, position, token, other.carrier, original.arrived)
        part = Item(original, self.state, first.key, first.event_key, first.part, first.only_for)
        part.message, part.leader = self.message, first  # the journal reads the id of the message
        return part

    def become(self, state: State) -> None:
        """Change the state, as the table allows; for those with data there is a method below."""
        if self.state not in FROM[state]:
            raise IllegalTransitionError(f"a message that is {self.state!s} cannot become {state!s}")
        self.state = state

    # Before the send

    def repeat(self, first: "Item", state: State = State.REPEATED) -> None:
        """Share the result of *first*, the same message earlier in the batch, or with COPIED another copy of it."""
        self.become(state)
        self.leader = first

    def recall(self, outcome: Outcome, accepted: AcceptedSends) -> None:
        """End with an *outcome* that *accepted* knows already."""
        is_copy = outcome is Outcome.SENT and accepted.is_copy(self.event_key, self.key)
        self.become(State.SENT_AS_COPY if is_copy else _KNOWN[outcome])
        self.stage = Stage.EDITED

    def join(self, leader: "Item", joined: Joined, rejection: Rejection | None = None) -> None:
        """Follow *leader* and share its result; *rejection* is that of a failed leader."""
        self.become(State.JOINED)
        self._unlink()
        self.leader, self.joined = leader, joined
        self.target = self.outgoing = self.departed = None
        self.rejection = rejection
        if isinstance(leader.followers, list):
            leader.followers.append(self)
        else:
            leader.followers = [self]

    def withhold(self, outcome: Outcome, reason: str, stage: Stage) -> None:
        """Finish as filtered, looped or expired, with all followers."""
        self.become(_WITHHELD[outcome])
        self.target = self.outgoing = self.departed = None
        self.reason, self.stage = self._about(reason), stage
        for follower in self.followers:
            follower.withhold(outcome, reason, stage)

    def fail(self, rejection: Rejection) -> None:
        """Be at fault before anything is sent."""
        self.become(State.FAILED)
        self._unlink()
        self.target = self.outgoing = self.departed = None
        self.rejection, self.reason = rejection, self._about(str(rejection.error))

    def route(self, target: Target) -> None:
        """Get a *target*."""
        self.become(State.ROUTED)
        self.target = target

    def fit(self, outgoing: Outgoing, departed: Imprint | None) -> None:
        """Become ready to be sent as *outgoing*; *departed* is its imprint for the journal."""
        self.become(State.READY)
        self.outgoing, self.departed = outgoing, departed
        self.message = None  # a batch may wait for its target for an hour
        for follower in self.followers:
            follower.depart(departed)

    # The send

    def shorten(self, now: int) -> None:
        """Let its copy live no longer than until it *ends_at*: it is sent *now*, in milliseconds since 1970."""
        outgoing = self.outgoing
        if self.ends_at is None or outgoing is None:
            return
        life = max(self.ends_at - now, MIN_MILLISECONDS)
        if outgoing.time_to_live is not None:
            self.outgoing = replace(outgoing, time_to_live=life)
        else:
            self.outgoing = replace(outgoing, content=shortened(outgoing.content, life))

    def accept(self) -> None:
        """Finish as sent, with all followers, even if the target refused it before."""
        self.become(State.SENT)
        self.rejection = self.reason = None
        for follower in self.followers:
            follower.share(self)

    def refuse(self, rejection: Rejection) -> None:
        """Be at fault for its target."""
        self.become(State.REFUSED)
        self.rejection, self.reason = rejection, self._about(str(rejection.error))

    def admit(self) -> None:
        """Move to the messages to be set aside, with all followers, which are then independent."""
        self.become(State.SET_ASIDE)
        for follower in self.followers:
            follower.rejection, follower.reason = self.rejection, self.reason
            follower.leader = follower.joined = None
            follower.admit()
        self.followers = ()

    def address(self, rejects: Target, outgoing: Outgoing) -> None:
        """Go to *rejects*, as it was received."""
        self.become(State.ADDRESSED)
        self.target, self.outgoing = rejects, outgoing

    def wrap(self, outgoing: Outgoing) -> None:
        """Be on its way to `rejects`, wrapped."""
        self.become(State.WRAPPED)
        self.outgoing = outgoing

    # The end

    def end_as_first(self) -> None:
        """Finish a repeated item with the result of the first."""
        first = self.leader
        if first is None or first.outcome is None:
            raise IllegalTransitionError(f"a message that is {self.state!s} does not repeat one that has ended")
        if first.outcome is Outcome.SENT and self.state is State.COPIED:
            self.become(State.SENT_AS_COPY)
        elif first.outcome is Outcome.RETRY:
            self.become(State.LEFT)
        else:
            self.become(_KNOWN.get(first.outcome) or _WITHHELD[first.outcome])
        self.reason, self.stage, self.rejection = first.reason, first.stage, first.rejection

    def leave(self, reason: str | None = None) -> None:
        """Stay at the source; *reason* is that of the whole batch."""
        stage = _STAGES.get(self.state, Stage.EDITED)
        self.become(State.LEFT)
        self.stage = stage if self.rejection is None else self.rejection.stage
        self.reason = self.reason or reason

    def _about(self, reason: str) -> str:
        return reason if self.only_for is None else f"for {self.only_for}: {reason}"

    def _unlink(self) -> None:
        """End its following of another item."""
        if self.leader is not None:
            self.leader.followers = [follower for follower in self.leader.followers if follower is not self]
            self.leader = self.joined = None

    def depart(self, departed: Imprint | None) -> None:
        """Keep what the journal keeps of the leader."""
        self.departed = departed
        for follower in self.followers:
            follower.depart(departed)

    def share(self, leader: "Item") -> None:
        """Finish like *leader*: it was sent, or need not be sent because another message was."""
        joined = self.joined
        if leader.state is not State.SENT:
            self.withhold(Outcome.FILTERED, leader.reason or "", Stage.EDITED)
        elif joined is not None and joined.outcome is not Outcome.SENT:
            self.withhold(joined.outcome, joined.reason or "", Stage.EDITED)
        else:
            self.target = leader.target
            self.accept()
