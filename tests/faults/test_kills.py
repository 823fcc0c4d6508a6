import pytest

from tests.faults.kills import KILLS


@pytest.mark.parametrize("scenario", KILLS, ids=str)
def test_nothing_is_lost_and_everything_explained(scenario, played) -> None:
    assert played[str(scenario)].result().objections() == []
