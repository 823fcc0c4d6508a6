"""Requests for several messages, which one of them can make fail."""

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from shared.resend.receiver import by_halves


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_halves_find_those_that_fail_and_the_others_succeed_once(fails: list[bool]) -> None:
    done: list[int] = []

    async def attempt(numbers: Sequence[int]) -> None:
        if any(fails[number] for number in numbers):
            raise LookupError
        done.extend(numbers)

    failed = asyncio.run(by_halves(range(len(fails)), attempt, LookupError))
    assert failed == [number for number, fail in enumerate(fails) if fail]
    assert done == [number for number, fail in enumerate(fails) if not fail]
