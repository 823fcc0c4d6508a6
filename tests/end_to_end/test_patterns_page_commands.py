"""The commands of docs/patterns/, docs/amqp.md and docs/kafka.md; `test_slow_pages` runs those of other patterns."""

from pathlib import Path

import pytest

from tests.end_to_end.pattern_pages import QUICK_RUNS, own_app, run_as_shown

pytestmark = pytest.mark.long

IDS = [Path(run[0]).name for run in QUICK_RUNS]


@pytest.mark.parametrize(("pattern", "commands", "printed"), QUICK_RUNS, ids=IDS)
def test_commands_print_what_the_page_shows(pattern: str, commands: str, printed: str, tmp_path: Path) -> None:
    run_as_shown(pattern, commands, printed, own_app(tmp_path))


def test_the_two_quick_runs_are_those_of_the_pages() -> None:
    assert len(QUICK_RUNS) == 2
