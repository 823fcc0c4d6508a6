from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from shared.line.sender import _CALL_BYTES, calls_at_once
from shared.protocols import Outgoing


def message(size: int, session_id: str | None = None, partition_key: str | None = None) -> Outgoing:
    return Outgoing(bytes(size), None, session_id, partition_key)


MESSAGES = st.lists(
    st.builds(
        message,
        st.sampled_from([0, 1_000, 50_000, 150_000, 400_000]),
        st.sampled_from([None, None, "", "a", "b"]),
        st.sampled_from([None, "a", "c"]),
    ),
    min_size=1,
    max_size=40,
)


@given(MESSAGES)
def test_each_message_is_in_one_call_and_calls_keep_the_order(messages: list[Outgoing]) -> None:
    calls = calls_at_once(messages)
    assert sorted(position for call in calls for position in call) == list(range(len(messages)))
    assert all(list(call) == sorted(call) for call in calls)
    assert all(calls)


@given(MESSAGES)
def test_messages_of_one_key_are_in_one_call(messages: list[Outgoing]) -> None:
    used = defaultdict(set)
    for number, call in enumerate(calls_at_once(messages)):
        for position in call:
            used[messages[position].order_key].add(number)
    assert all(len(numbers) == 1 for key, numbers in used.items() if key is not None)


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=60))
def test_calls_of_messages_without_keys_are_about_a_transfer_each(sizes: list[int]) -> None:
    calls = calls_at_once([message(size) for size in sizes])
    assert all(sum(sizes[position] for position in call) < _CALL_BYTES + 60_000 for call in calls)
