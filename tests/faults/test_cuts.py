from concurrent.futures import Future

import pytest

from tests.faults.cuts import CUTS
from tests.faults.scenario import Row, Scenario


@pytest.mark.parametrize("scenario", CUTS, ids=str)
def test_nothing_is_lost_and_every_duplicate_is_explained(scenario: Scenario, played: dict[str, Future[Row]]) -> None:
    assert played[str(scenario)].result().objections() == []
