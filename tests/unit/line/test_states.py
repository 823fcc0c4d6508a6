"""The table of states: complete, documented, and the only way in which a message changes its state."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import MessageRejected
from shared.line.accepted_sends import AcceptedSends
from shared.line.item import Item, Original
from shared.line.routing import Target
from shared.line.states import (
    FROM,
    OUTCOMES,
    WITH_FIRST,
    IllegalTransitionError,
    Rejection,
    Stage,
    State,
    lines,
)
from shared.message.arrival import Arrival, Key
from shared.protocols import Joined, Outcome, Outgoing
from tests.fakes import OutputThatAccepts
from tests.messages import ORIGIN

ROOT = Path(__file__).parents[3]
TARGET = Target(OutputThatAccepts(), "east", "orders")
OUTGOING = Outgoing(b"content", "id", None, None)
REJECTION = Rejection(MessageRejected("Bad", "it is bad"), Stage.EDITED, "copy")


class AcceptedSendsOfCopies(AcceptedSends):
    """Knows every message from another envelope."""

    def is_copy(self, event_key: Key | None, delivery: Key | None) -> bool:  # noqa: ARG002 - all are
        return True


CHANGES: dict[State, Callable[[Item], None]] = {
    State.ROUTED: lambda item: item.route(TARGET),
    State.READY: lambda item: item.fit(OUTGOING, None),
    State.JOINED: lambda item: item.join(new_item(), Joined(0)),
    State.REPEATED: lambda item: item.repeat(new_item()),
    State.COPIED: lambda item: item.repeat(new_item(), State.COPIED),
    State.FAILED: lambda item: item.fail(REJECTION),
    State.HANDED_OVER: lambda item: item.become(State.HANDED_OVER),
    State.REFUSED: lambda item: item.refuse(REJECTION),
    State.SET_ASIDE: Item.admit,
    State.ADDRESSED: lambda item: item.address(TARGET, OUTGOING),
    State.WRAPPED: lambda item: item.wrap(OUTGOING),
    State.SENT: Item.accept,
    State.FILTERED: lambda item: item.withhold(Outcome.FILTERED, "filtered", Stage.EDITED),
    State.LOOPED: lambda item: item.withhold(Outcome.LOOPED, "looped", Stage.ROUTED),
    State.EXPIRED: lambda item: item.withhold(Outcome.EXPIRED, "expired", Stage.STAMPED),
    State.REJECTED: lambda item: item.become(State.REJECTED),
    State.DEAD_LETTERED: lambda item: item.become(State.DEAD_LETTERED),
    State.SENT_BEFORE: lambda item: item.recall(Outcome.SENT, AcceptedSends()),
    State.SENT_AS_COPY: lambda item: item.recall(Outcome.SENT, AcceptedSendsOfCopies()),
    State.FILTERED_BEFORE: lambda item: item.recall(Outcome.FILTERED, AcceptedSends()),
    State.REJECTED_BEFORE: lambda item: item.recall(Outcome.REJECTED, AcceptedSends()),
    State.LEFT: Item.leave,
}


def new_item() -> Item:
    return Item(Original(b"content", Arrival(ORIGIN, 1), 0))


def test_every_state_is_terminal_with_one_outcome_or_leads_to_another() -> None:
    assert FROM.keys() == set(State) == CHANGES.keys() | {State.RECEIVED}
    assert {state for before in FROM.values() for state in before} == set(State) - OUTCOMES.keys()
    assert set(OUTCOMES.values()) == set(Outcome)


def test_every_state_can_be_reached_and_every_unfinished_message_can_be_left_at_the_source() -> None:
    assert [state for state, before in FROM.items() if not before] == [State.RECEIVED]
    assert set(FROM[State.LEFT]) == set(State) - OUTCOMES.keys()


@given(st.lists(st.sampled_from(list(CHANGES)), max_size=30))
def test_random_changes_follow_the_table_and_illegal_ones_raise(states: list[State]) -> None:
    item = new_item()
    for after in states:
        before = item.state
        if before in FROM[after]:
            CHANGES[after](item)
            assert item.state is after
        else:
            with pytest.raises(IllegalTransitionError):
                CHANGES[after](item)
            assert item.state is before
        check_data(item)


def check_data(item: Item) -> None:
    """Assert that an item has the data of its state."""
    state = item.state
    assert (item.outcome is not None) == (state in OUTCOMES)
    if state in (State.READY, State.SENT) and item.joined is None:
        assert item.target is TARGET
        assert item.outgoing is OUTGOING
    if state in (State.FAILED, State.REFUSED):
        assert item.rejection is REJECTION
    if state in (State.FILTERED, State.LOOPED, State.EXPIRED):
        assert (item.reason, item.outgoing) == (state.value, None)
    if state is State.JOINED:
        assert item.leader is not None
        assert item in item.leader.followers
    if state in WITH_FIRST:
        assert item.leader is not None


def test_an_illegal_change_names_both_states() -> None:
    item = new_item()
    item.fail(REJECTION)
    with pytest.raises(IllegalTransitionError, match="a message that is failed cannot become sent"):
        item.accept()


def test_followers_share_the_result_of_their_leader() -> None:
    leader, follower, repeated, last = (new_item() for _ in range(4))
    follower.join(leader, Joined(0))
    repeated.join(leader, Joined(0, Outcome.FILTERED, "sent already"))
    last.join(follower, Joined(0))
    leader.route(TARGET)
    leader.fit(OUTGOING, None)
    leader.accept()
    assert [item.state for item in (leader, follower, repeated, last)] == ["sent", "sent", "filtered", "sent"]
    assert [item.target for item in (follower, repeated, last)] == [TARGET, None, TARGET]


def test_the_page_has_the_table_that_the_module_prints() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "shared.line.states"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert printed.splitlines() == lines()
    assert max(map(len, lines())) <= 80
    assert f"```text\n{printed}```\n" in (ROOT / "docs/contribute/line.md").read_text(encoding="utf-8")


def test_only_the_methods_of_an_item_change_its_state() -> None:
    assignments = re.compile(r"\.state\s*=[^=]")
    found = [path.name for path in (ROOT / "shared").rglob("*.py") if assignments.search(path.read_text("utf-8"))]
    assert found == ["item.py"]
