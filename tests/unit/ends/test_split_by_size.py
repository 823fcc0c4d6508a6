import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.ends.batches import (
    _ENVELOPE,
    _LONG_OVERHEAD,
    batch_size,
    encode_batch,
    envelope_of,
    split_by_size,
)
from shared.protocols import Outgoing

LIMIT = _ENVELOPE + 1000


def outgoing(size: int, *, text: str | None = None) -> Outgoing:
    return Outgoing(b"x" * size, text, text, text)


@pytest.mark.parametrize(
    ("sizes", "chunks"),
    [
        ([100], [[100]]),
        ([100, 200, 300], [[100, 200, 300]]),
        ([492, 492], [[492, 492]]),
        ([493, 492], [[493], [492]]),
        ([400, 400, 400], [[400, 400], [400]]),
        ([5000], [[5000]]),
        ([10, 5000, 10], [[10], [5000], [10]]),
        ([5000, 10, 20], [[5000], [10, 20]]),
        ([992, 1], [[992], [1]]),
    ],
)
def test_runs_fit_the_limit(sizes: list[int], chunks: list[list[int]]) -> None:
    split = split_by_size([outgoing(size) for size in sizes], LIMIT)
    assert [[len(message.content) for message in chunk] for chunk in split] == chunks


@given(st.lists(st.integers(0, 1500), min_size=1, max_size=40))
def test_nothing_is_lost_or_moved_and_no_run_of_several_exceeds_the_limit(sizes: list[int]) -> None:
    messages = [outgoing(size) for size in sizes]
    chunks = split_by_size(messages, LIMIT)
    assert [message for chunk in chunks for message in chunk] == messages
    assert all(chunks)
    for chunk in chunks:
        assert len(chunk) == 1 or sum(len(message.content) + _LONG_OVERHEAD for message in chunk) + _ENVELOPE <= LIMIT


@given(st.lists(st.integers(0, 600), min_size=1, max_size=30), st.sampled_from([None, "k", "ä" * 128]))
def test_what_fits_by_our_count_fits_by_the_bytes_of_the_batch(sizes: list[int], text: str | None) -> None:
    for chunk in split_by_size([outgoing(size, text=text) for size in sizes], LIMIT):
        assert len(encode_batch(envelope_of(chunk[0]), [message.content for message in chunk])) <= LIMIT


@given(st.integers(0, 600), st.sampled_from([None, "k", "ä" * 128]))
def test_the_size_of_a_batch_with_one_message_is_exact(size: int, text: str | None) -> None:
    envelope = envelope_of(outgoing(size, text=text))
    assert batch_size(envelope, b"x" * size) == len(encode_batch(envelope, [b"x" * size]))
