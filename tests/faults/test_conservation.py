"""The oracle reports every planted fault, and nothing else."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.faults.conservation import Account, Copy, balance

KEYS = ("a", "b", "c")
ACCEPTED = [Copy(key, f"{key}{number}") for number in range(10) for key in KEYS]
FAIR = Account(
    accepted=ACCEPTED,
    delivered=[copy for key in KEYS for copy in ACCEPTED if copy.key == key][:-3],
    withheld=frozenset({"c7"}),
    rejected=("c8",),
    remaining=frozenset({"c9"}),
    repeatable=Counter(),
)


def clean(account: Account) -> bool:
    result = balance(account)
    return not (
        result.lost
        or result.foreign
        or result.contradicted
        or result.unexplained
        or result.order_breaks
        or result.dead_lettered
        or result.duplicates
    )


def test_an_account_without_faults_is_clean() -> None:
    result = balance(FAIR)
    assert clean(FAIR)
    assert (result.accepted, result.delivered, result.withheld, result.rejected, result.remaining) == (30, 27, 1, 1, 1)


@pytest.mark.parametrize("place", ["delivered", "withheld", "rejected", "remaining"])
def test_a_message_that_is_nowhere_is_lost(place: str) -> None:
    found = getattr(FAIR, place)
    missing = min(each.name if isinstance(each, Copy) else each for each in found)
    left = type(found)(each for each in found if missing not in (each, getattr(each, "name", None)))
    assert balance(replace(FAIR, **{place: left})).lost == (missing,)


def test_every_single_loss_is_found() -> None:
    for number, copy in enumerate(FAIR.delivered):
        result = balance(replace(FAIR, delivered=[*FAIR.delivered[:number], *FAIR.delivered[number + 1 :]]))
        assert result.lost == (copy.name,)


def test_a_duplicate_does_not_compensate_for_a_loss() -> None:
    result = balance(replace(FAIR, delivered=[FAIR.delivered[1], *FAIR.delivered[1:]]))
    assert result.lost == ("a0",)
    assert result.duplicates == Counter({"a1": 1})


def test_a_swap_within_a_key_breaks_its_order() -> None:
    delivered = list(FAIR.delivered)
    delivered[3], delivered[4] = delivered[4], delivered[3]
    assert balance(replace(FAIR, delivered=delivered)).order_breaks == ("a3",)


def test_a_very_late_message_is_one_order_break() -> None:
    delivered = [*FAIR.delivered[1:10], FAIR.delivered[0], *FAIR.delivered[10:]]
    assert balance(replace(FAIR, delivered=delivered)).order_breaks == ("a0",)


def test_the_order_between_keys_does_not_count() -> None:
    delivered = sorted(FAIR.delivered, key=lambda copy: (copy.name[1:], copy.key))
    assert balance(replace(FAIR, delivered=delivered)).order_breaks == ()


def test_a_duplicate_breaks_no_order() -> None:
    result = balance(replace(FAIR, delivered=[*FAIR.delivered, FAIR.delivered[0], FAIR.delivered[0]]))
    assert result.order_breaks == ()
    assert result.duplicates == result.unexplained == Counter({"a0": 2})


def test_only_the_explained_number_of_copies_is_explained() -> None:
    delivered = [*FAIR.delivered, *FAIR.delivered[:2], FAIR.delivered[0]]
    result = balance(replace(FAIR, delivered=delivered, repeatable=Counter({"a0": 1, "a1": 1, "a2": 1})))
    assert result.duplicates == Counter({"a0": 2, "a1": 1})
    assert result.unexplained == Counter({"a0": 1})


def test_a_message_at_the_target_and_in_rejects_is_a_duplicate() -> None:
    assert balance(replace(FAIR, rejected=("c8", "a0"))).unexplained == Counter({"a0": 1})


def test_a_withheld_message_that_arrived_is_a_contradiction() -> None:
    assert balance(replace(FAIR, withheld=frozenset({"c7", "a0"}))).contradicted == ("a0",)


def test_a_message_that_was_never_sent_is_foreign() -> None:
    assert balance(replace(FAIR, delivered=[*FAIR.delivered, Copy("a", "x")])).foreign == ("x",)
    assert balance(replace(FAIR, rejected=("c8", "y"))).foreign == ("y",)


def test_a_dead_letter_is_reported_and_counts_as_lost() -> None:
    result = balance(replace(FAIR, remaining=frozenset(), dead_lettered=("c9",)))
    assert (result.lost, result.dead_lettered) == (("c9",), ("c9",))


def test_names_must_be_unique() -> None:
    with pytest.raises(ValueError, match="duplicate names"):
        balance(replace(FAIR, accepted=[*ACCEPTED, ACCEPTED[0]]))


def test_planted_faults_are_found_in_any_combination() -> None:
    chance = random.Random(20261121)
    for _ in range(200):
        delivered = list(FAIR.delivered)
        lost = {delivered.pop(chance.randrange(len(delivered))).name for _ in range(chance.randrange(4))}
        again = Counter(copy.name for copy in chance.choices(delivered, k=chance.randrange(4)))
        for copy in [one for one in delivered for _ in range(again[one.name])]:
            delivered.insert(chance.randrange(delivered.index(copy) + 1, len(delivered) + 1), copy)
        result = balance(replace(FAIR, delivered=delivered))
        assert set(result.lost) == lost
        assert result.duplicates == result.unexplained == again
        assert result.order_breaks == ()
