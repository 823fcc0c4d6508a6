"""De-duplicating receivers of two processes or more, at two queues that have a copy of each message."""

import pytest

from tests.clients.receivers.histories import History


@pytest.mark.parametrize("seed", [*range(60), 99, 408, 1160, 5119])
def test_a_history_loses_nothing_and_repeats_only_what_is_documented(seed: int) -> None:
    # 99: a claim was requested by a run that was cancelled.
    # 408: a run was stopped while the store did not record a success.
    # 1160: a late answer to the release of one copy's claim made the receiver forget the success of the other copy.
    # 5119: both copies reported the claim of the first.
    history = History(seed)
    assert history.run(), history.log[-20:]
    assert history.objections() == [], history.log
