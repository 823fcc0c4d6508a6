from concurrent.futures import Future

import pytest

from tests.faults.envelopes import ENVELOPED
from tests.faults.scenario import Row, Scenario


@pytest.mark.parametrize("scenario", ENVELOPED, ids=str)
def test_no_message_is_lost_and_every_duplicate_is_explained(scenario: Scenario, rows: dict[str, Future[Row]]) -> None:
    assert rows[str(scenario)].result().objections() == []
