"""
Sets of tasks that can be loaded but are wrong: each folder of `broken/` with all findings of a review.

`findings.txt` has a line for each finding: severity, check, place, problem. `busway check tests/golden/broken/*`
reports all of them with their remedies.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.entities import beside, entities_of
from cli.main import app
from shared.review import CHECKS, review
from shared.tasks.files import load

BROKEN = sorted(path for path in Path(__file__).with_name("broken").iterdir() if path.is_dir())


def findings_in(folder: Path) -> list[str]:
    configuration = load(folder)
    entities = entities_of([str(path) for path in beside(folder)], configuration.connections)
    return [
        f"{each.check.severity} {each.check.name}: {each.path.removeprefix(f'{folder}/')}: {each.seen}"
        for each in review(configuration, entities)
    ]


def test_one_command_reports_all_sets_with_the_remedies() -> None:
    result = CliRunner().invoke(app, ["check", *map(str, BROKEN)])
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    starts = [lines.index(f"{folder}:") for folder in BROKEN]
    remedies = {check.name: check.remedy for check in CHECKS}
    for folder, start, end in zip(BROKEN, starts, [*starts[1:], len(lines)], strict=True):
        findings = [line.replace(f"{folder}/", "") for line in lines[start + 1 : end]]
        expected = folder.joinpath("findings.txt").read_text(encoding="utf-8").splitlines()
        with_remedies = [f"{each} ({remedies[each.split(' ')[1].removesuffix(':')]})" for each in expected]
        assert [line for line in findings if line.startswith(("error ", "warning "))] == with_remedies
    assert len(BROKEN) >= 10


@pytest.mark.parametrize("folder", BROKEN, ids=lambda path: path.name)
def test_all_findings_are_reported(folder: Path) -> None:
    assert findings_in(folder) == folder.joinpath("findings.txt").read_text(encoding="utf-8").splitlines()
