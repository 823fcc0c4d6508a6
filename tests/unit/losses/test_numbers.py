"""Which missing numbers are losses: the rules, without time or services of their own."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from shared.losses.numbers import GRACE, MOST_GAPS, PATIENCE, Dead, Held, Numbers, Received

MINUTE = 60_000
START = 1_000_000


def received(numbers: Iterable[int], time: int = START) -> list[Received]:
    return [Received(number, time + number) for number in numbers]


def watched(*numbers: int) -> Numbers:
    watch = Numbers(START)
    watch.receive(received(numbers), START)
    return watch


def lost(watch: Numbers, held: Iterable[Held] = (), *, from_minute: int = 1, minutes: int = 3) -> set[int]:
    """Look every minute, with a source that holds *held* all the time."""
    found: set[int] = set()
    for minute in range(from_minute, from_minute + minutes):
        watch.answer(list(held), None, START + minute * MINUTE)
        for loss in watch.lose(START + minute * MINUTE):
            found |= set(range(loss.first, loss.last + 1))
    return found


@given(
    st.sets(st.integers(1, 60)),
    st.sets(st.integers(1, 60)),
    st.lists(st.integers(1, 60), max_size=20),
    st.randoms(use_true_random=False),
)
def test_exactly_what_is_neither_received_nor_held_is_lost(
    gone: set[int], held: set[int], again: list[int], random: object
) -> None:
    gone, held = gone - {1, 60}, held - gone - {1, 60}
    arriving = [number for number in range(1, 61) if number not in gone | held] + [
        number for number in again if number not in gone | held
    ]
    getattr(random, "shuffle")(arriving)  # noqa: B009 - hypothesis hides the type
    watch = Numbers(START)
    watch.receive(received([1]), START)
    half = len(arriving) // 2
    watch.receive(received(arriving[:half]), START)
    watch.receive(received([*arriving[half:], 60]), START)
    assert lost(watch, [Held(number) for number in held]) == gone
    # What was held and is gone without a record is lost too; what is received in the end is not.
    late = set(sorted(held)[::2])
    watch.receive(received(late), START + 4 * MINUTE)
    assert lost(watch, from_minute=5) == held - late


def test_a_loss_takes_two_looks_without_it_and_the_grace() -> None:
    watch = watched(1, 3)
    watch.answer([], None, START)
    assert watch.lose(START + GRACE - 1) == []
    assert [loss.first for loss in watch.lose(START + GRACE)] == [2]


def test_a_number_that_is_absent_only_once_is_no_loss() -> None:
    watch = watched(1, 3)
    watch.answer([], None, START + MINUTE)
    watch.answer([Held(2)], None, START + 2 * MINUTE)
    watch.answer([], None, START + 3 * MINUTE)
    assert watch.lose(START + 3 * MINUTE + PATIENCE - 1) == []


def test_what_was_enqueued_before_the_watch_began_is_not_watched() -> None:
    watch = Numbers(START)
    watch.receive([Received(5, START - 1), Received(9, START), Received(3, START + 1), Received(11, START + 2)], START)
    assert lost(watch) == {10}


def test_an_entity_that_was_created_again_counts_from_one() -> None:
    watch = watched(100, 103)
    watch.receive(received([1, 3], START + 10 * MINUTE), START + 10 * MINUTE)
    # A late delivery of the old entity makes no gap up to its number.
    watch.receive(received([104]), START + 11 * MINUTE)
    assert lost(watch, from_minute=11) == {2}
    assert watch.unwatched == 2


def test_a_loss_that_is_received_or_repaired_is_taken_back() -> None:
    watch = watched(1, 5)
    assert lost(watch) == {2, 3, 4}
    assert watch.receive(received([3]), START + 5 * MINUTE) == 1
    assert [(loss.first, loss.last) for loss in watch.losses] == [(2, 2), (4, 4)]
    assert watch.receive(received([3]), START + 5 * MINUTE) == 0


def test_a_scheduled_message_that_was_seen_accounts_for_its_first_number() -> None:
    due = START + 30 * MINUTE
    watch = watched(1, 4)
    assert lost(watch, [Held(2, due), Held(3)]) == set()
    watch.receive([Received(3, START + 3), Received(5, due, due), Received(7, due + 1)], due)
    # Its due time says that it is this one, so that it does not account for number 6 as well.
    assert lost(watch, from_minute=31) == {6}


def test_messages_scheduled_between_two_looks_account_for_as_many_numbers() -> None:
    watch = watched(1, 4)
    watch.receive([Received(5, START + 5, START + 5), Received(6, START + 6, START + 6)], START)
    assert lost(watch) == set()
    watch.receive([Received(10, START + 7), Received(11, START + 8, START + 8)], START)
    watch.answer([], None, START + 4 * MINUTE)
    losses = watch.lose(START + 6 * MINUTE)
    assert sum(loss.count - loss.scheduled for loss in losses) == 2


def test_a_message_without_a_readable_number_accounts_for_one() -> None:
    watch = watched(1, 3)
    watch.receive([Received(None, None)], START)
    assert lost(watch) == set()


def test_dead_letters_are_no_losses_by_number_or_by_time() -> None:
    watch = watched(1, 3, 6, 10)
    watch.answer([], None, START)
    dead = [
        Dead(1, 2, None, is_given_up=False),  # its number at the source
        Dead(2, None, START + 4, is_given_up=True),  # enqueued between the neighbours
        Dead(3, None, START + 8, is_given_up=False),  # of a receiver: it may have been received
        Dead(4, 6, START + 8, is_given_up=True),  # was received
    ]
    assert watch.explain(dead) == 2
    assert watch.explain(dead) == 0
    assert len(lost(watch)) == 4


def test_a_source_that_could_not_be_seen_to_its_end_is_seen_further_next_time() -> None:
    watch = watched(1, 10)
    watch.answer([Held(2), Held(3)], 5, START)
    assert watch.resume == 6
    assert [(question.first, question.last) for question in watch.questions()] == [(6, 9)]
    watch.answer([Held(9)], None, START + MINUTE)
    watch.answer([Held(2), Held(3), Held(9)], None, START + 2 * MINUTE)
    assert {number for loss in watch.lose(START + 3 * MINUTE) for number in range(loss.first, loss.last + 1)} == {
        *(4, 5),
        *(6, 7, 8),
    }


def test_gaps_of_a_journal_that_lacks_records_are_given_up() -> None:
    watch = watched(1, 3)
    assert watch.forgive(START - 1, START + 1) == 1
    assert lost(watch) == set()


def test_the_number_of_gaps_is_bounded_and_what_is_given_up_is_counted() -> None:
    watch = Numbers(START)
    watch.receive(received(range(1, 2 * MOST_GAPS + 100, 2)), START)
    assert len(watch.gaps) == MOST_GAPS
    assert watch.unwatched == 49


def test_a_leap_of_numbers_costs_no_memory() -> None:
    watch = watched(1, 1 << 47)
    assert len(watch.gaps) == 1
    watch.answer([Held(1 << 46)], None, START)
    assert len(watch.gaps) == 3
