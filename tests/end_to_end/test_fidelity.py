"""Every type, body and broker property over every route and five hops, as on the wire and as Azure hands it over."""

from pathlib import Path

import pytest

from tests.fidelity.journeys import JOURNEYS, WIRE, Journey, Observations, observe
from tests.fidelity.parts import changes, parts
from tests.fidelity.specimens import SPECIMENS
from tests.fidelity.table import cell, table

PAGE = Path(__file__).parents[2] / "docs/fidelity.md"


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observations:
    return observe(tmp_path_factory.mktemp("fidelity"))


def test_the_table_on_the_page_matches_the_observations(observed: Observations) -> None:
    assert table(observed) in PAGE.read_text(encoding="utf-8"), (
        "run `python -m tests.fidelity` and put its table in docs/fidelity.md"
    )


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: f"{journey.mode}-{journey.kinds}")
def test_every_change_has_a_reason(observed: Observations, journey: Journey) -> None:
    for key in SPECIMENS:
        cell(journey, key, observed)


@pytest.mark.parametrize(
    "kinds", [journey.kinds for journey in JOURNEYS if journey.mode == WIRE and journey.kinds[0] == journey.kinds[-1]]
)
def test_without_the_host_only_stamps_and_target_properties_differ(observed: Observations, kinds: str) -> None:
    (journey,) = (journey for journey in JOURNEYS if journey.mode == WIRE and journey.kinds == kinds)
    changed = {
        (SPECIMENS[key].name, place)
        for key, content in observed.delivered[kinds[0]].items()
        for place in changes(parts(content), parts(observed.arrived[journey][key]))
    }
    left_out = {(name, f"annotation {name}") for name in ("x-opt-scheduled-enqueue-time", "x-opt-via-partition-key")}
    left_out.add(("an entry", "delivery d"))  # delivery annotations are for one hop
    by_kind = {("no message-id", "field 0")} if kinds[0] == "E" else set()
    assert changed == {("absolute-expiry-time", "field 8"), *left_out, *by_kind}
