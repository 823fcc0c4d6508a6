import pytest

from tests.faults.outages import OUTAGES


@pytest.mark.parametrize("scenario", OUTAGES, ids=str)
def test_nothing_is_lost_and_everything_explained(scenario, played) -> None:
    assert played[str(scenario)].result().objections() == []
