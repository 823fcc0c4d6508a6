"""All scenarios, as many at a time as in the catalogue: each change runs the short ones, `make faults` all."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.catalogue import CONCURRENT_SCENARIOS, SCENARIOS
from tests.faults.scenario import Row, Scenario

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Row]]]:
    """Run the scenarios of the selected tests; each test waits for the row of its own."""
    chosen: list[Scenario] = [
        item.callspec.params["scenario"]
        for item in request.session.items
        if getattr(item, "module", None) is request.module
        and hasattr(item, "callspec")
        and not item.get_closest_marker("skip")
    ]
    with ThreadPoolExecutor(CONCURRENT_SCENARIOS) as pool:
        rows: dict[str, Future[Row]] = {str(scenario): pool.submit(scenario.run) for scenario in chosen}
        yield rows
        for row in rows.values():
            row.cancel()


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, id=str(each), marks=[] if each.is_short else pytest.mark.slow) for each in SCENARIOS],
)
def test_no_message_is_lost_and_every_duplicate_is_explained(scenario: Scenario, rows: dict[str, Future[Row]]) -> None:
    assert rows[str(scenario)].result().objections() == []


def test_every_kind_of_line_takes_what_a_scenario_passes_to_it(tmp_path: Path) -> None:
    one_of_each = {scenario.line: scenario for scenario in SCENARIOS}
    assert len(one_of_each) > 1
    for kind, scenario in one_of_each.items():
        line = scenario.prepared(tmp_path / kind.__name__)
        line.__exit__()
        assert type(line) is kind
