from concurrent.futures import Future

import pytest

from tests.faults.event_grid import EVENT_GRID
from tests.faults.scenario import Row, Scenario

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", EVENT_GRID, ids=str)
def test_no_message_is_lost_and_every_duplicate_is_explained(scenario: Scenario, rows: dict[str, Future[Row]]) -> None:
    assert rows[str(scenario)].result().objections() == []
