"""A durable sender at two namespaces that fail, in processes that are killed."""

import pytest

from tests.clients.senders.histories import History


@pytest.mark.parametrize("seed", range(80))
def test_a_history_loses_nothing_sends_nothing_twice_and_keeps_the_order(seed: int) -> None:
    history = History(seed)
    assert history.run(), history.log[-20:]
    assert history.objections() == [], history.log
