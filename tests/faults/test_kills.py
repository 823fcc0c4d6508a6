from concurrent.futures import Future

import pytest

from tests.faults.kills import KILLS
from tests.faults.scenario import Row, Scenario

pytestmark = pytest.mark.long


@pytest.mark.parametrize("scenario", KILLS, ids=str)
def test_no_message_is_lost_and_every_duplicate_is_explained(scenario: Scenario, rows: dict[str, Future[Row]]) -> None:
    assert rows[str(scenario)].result().objections() == []
