"""
Sets of tasks that are readable and wrong: each folder of `broken/` with all that a review finds in it.

`findings.txt` has a line for each finding: severity, check, place, what is seen. Config.json files beside it are the
entities of the connections they are named after.
"""

from pathlib import Path

import pytest

from cli.entities import entities_of
from shared.config.files import load
from shared.config.review import review

BROKEN = sorted(path for path in Path(__file__).with_name("broken").iterdir() if path.is_dir())


def findings_in(folder: Path) -> list[str]:
    configuration = load(folder)
    entities = entities_of([str(path) for path in sorted(folder.glob("*.json"))], configuration.connections)
    return [
        f"{each.check.severity} {each.check.name}: {each.path.removeprefix(f'{folder}/')}: {each.seen}"
        for each in review(configuration, entities)
    ]


@pytest.mark.parametrize("folder", BROKEN, ids=lambda path: path.name)
def test_what_is_wrong_is_found(folder):
    assert findings_in(folder) == folder.joinpath("findings.txt").read_text(encoding="utf-8").splitlines()
