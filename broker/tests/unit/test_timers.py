"""Deadlines of messages, compared with a plain model."""

from hypothesis import given
from hypothesis import strategies as st

from busway_broker.core.content import read_content
from busway_broker.core.message import StoredMessage
from busway_broker.core.timers import Deadlines

CONTENT = read_content(b"")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 30)),
        st.tuples(st.just("drop"), st.integers(0, 40)),
        st.tuples(st.just("advance"), st.integers(1, 15)),
    ),
    max_size=60,
)


@given(STEPS)
def test_messages_are_due_by_deadline_whatever_the_order_of_their_times_to_live(steps: list[tuple[str, int]]) -> None:
    messages: dict[int, StoredMessage] = {}
    deadlines = Deadlines(messages)
    now = number = 0
    for step, value in steps:
        if step == "add":
            number += 1
            messages[number] = StoredMessage(CONTENT, number, 0, now, value, does_expire=True)
            deadlines.add(now + value, number)
        elif step == "drop":
            messages.pop(value, None)
        else:
            now += value
            due = sorted(each for each, message in messages.items() if message.is_expired(now))
            assert deadlines.pop_due(now) == due
            for each in due:
                del messages[each]
        assert deadlines.next() == min(
            filter(None, (message.expires_at for message in messages.values())), default=None
        )
