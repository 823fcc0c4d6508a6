"""Several scenarios run at a time, because they mostly wait."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.faults.catalogue import CONCURRENT_SCENARIOS
from tests.faults.scenario import Row, Scenario


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Row]]]:
    """Run the scenarios of the module's selected tests; each test waits for the row of its own."""
    chosen: list[Scenario] = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if getattr(item, "module", None) is request.module
        and hasattr(item, "callspec")
        and "scenario" in item.callspec.params
    ]
    with ThreadPoolExecutor(CONCURRENT_SCENARIOS) as pool:
        rows: dict[str, Future[Row]] = {str(scenario): pool.submit(scenario.run) for scenario in chosen}
        yield rows
        for row in rows.values():
            row.cancel()
