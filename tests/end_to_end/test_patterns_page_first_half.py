"""The commands of docs/patterns.md and docs/output-bindings.md: the first half, so that two workers share them."""

from pathlib import Path

import pytest

from tests.end_to_end.pattern_pages import QUICK_RUNS, own_app, run_as_shown

HALF = QUICK_RUNS[: len(QUICK_RUNS) // 2]


@pytest.mark.parametrize(("pattern", "commands", "printed"), HALF, ids=[Path(run[0]).name for run in HALF])
def test_commands_print_what_the_page_shows(pattern: str, commands: str, printed: str, tmp_path: Path) -> None:
    run_as_shown(pattern, commands, printed, own_app(tmp_path))
