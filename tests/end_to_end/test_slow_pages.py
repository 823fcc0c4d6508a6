"""The commands of docs/patterns/ and of the pages of other ends."""

from pathlib import Path

import pytest

from tests.end_to_end.pattern_pages import RUNS, own_app, run_as_shown

pytestmark = [pytest.mark.slow, pytest.mark.long]

# Always a page with another kind of target. `test_failover_page` runs several sites, and `test_patterns_*` and the
# fidelity table the tasks of the others, with clients of the SDKs.
ALWAYS = "hub-to-kafka"


@pytest.mark.parametrize(
    ("commands", "pattern", "printed"),
    [
        pytest.param(
            commands, pattern, printed, id=Path(pattern).name, marks=[pytest.mark.always] * pattern.endswith(ALWAYS)
        )
        for pattern, commands, printed in RUNS
    ],
)
def test_commands_print_what_the_page_shows(commands: str, pattern: str, printed: str, tmp_path: Path) -> None:
    run_as_shown(pattern, commands, printed, own_app(tmp_path))
