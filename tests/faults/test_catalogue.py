from pathlib import Path

from tests.faults.catalogue import SCENARIOS


def test_every_kind_of_line_takes_what_a_scenario_passes_to_it(tmp_path: Path) -> None:
    one_of_each = {scenario.line: scenario for scenario in SCENARIOS}
    assert len(one_of_each) > 1
    for kind, scenario in one_of_each.items():
        line = scenario.prepared(tmp_path / kind.__name__)
        line.__exit__()
        assert type(line) is kind
