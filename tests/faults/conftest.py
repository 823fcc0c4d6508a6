"""Scenarios are played several at a time, as most of their time is waiting."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.catalogue import PLAYED_AT_ONCE
from tests.faults.scenario import Row, Scenario


@pytest.fixture(scope="module")
def played(request):
    """Play the scenarios that the module's selected tests are about; the test of each waits for its row."""
    chosen: list[Scenario] = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if item.module is request.module and hasattr(item, "callspec") and "scenario" in item.callspec.params
    ]
    with ThreadPoolExecutor(PLAYED_AT_ONCE) as pool:
        rows: dict[str, Future[Row]] = {str(scenario): pool.submit(scenario.run) for scenario in chosen}
        yield rows
        for row in rows.values():
            row.cancel()
