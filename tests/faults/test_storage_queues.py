from concurrent.futures import Future

import pytest

from tests.faults.scenario import Row, Scenario
from tests.faults.storage_queues import STORAGE_QUEUES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scenario", STORAGE_QUEUES, ids=str)
def test_no_message_is_lost_and_every_duplicate_is_explained(scenario: Scenario, rows: dict[str, Future[Row]]) -> None:
    assert rows[str(scenario)].result().objections() == []
