"""The commands of the pages of patterns that `test_patterns_page_commands` does not run."""

from pathlib import Path

import pytest

from tests.end_to_end.pattern_pages import SLOW_RUNS, own_app, run_as_shown

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("pattern", "commands", "printed"), SLOW_RUNS, ids=[Path(run[0]).name for run in SLOW_RUNS])
def test_commands_print_what_the_page_shows(pattern: str, commands: str, printed: str, tmp_path: Path) -> None:
    run_as_shown(pattern, commands, printed, own_app(tmp_path))
