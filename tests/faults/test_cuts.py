import pytest

from tests.faults.cuts import CUTS


@pytest.mark.parametrize("scenario", CUTS, ids=str)
def test_nothing_is_lost_and_everything_explained(scenario, played) -> None:
    assert played[str(scenario)].result().objections() == []
