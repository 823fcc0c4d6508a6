import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cli.commands.schema import text

FILE = Path(__file__).parents[3] / "config/task.schema.json"


def test_the_schema_in_config_matches_the_model() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: busway schema > config/task.schema.json"


def test_the_schema_accepts_the_keys_of_a_task() -> None:
    assert {"task", "source", "routes", "rejects", "ttl"} <= json.loads(text())["$defs"]["TaskFile"][
        "properties"
    ].keys()


@pytest.mark.parametrize(
    ("document", "is_good"),
    [
        ({"task": "t", "source": {}, "tap": {"of": "copy", "side": "target"}}, False),
        ({"task": "t", "source": {"connection": "c"}, "tap": {"of": "copy", "side": "target"}}, True),
        ({"task": "t", "source": {"connection": "c"}, "tap": {"of": "copy"}, "routes": []}, False),
        ({"task": "t", "source": {"connection": "c"}, "routes": [{"target": {"connection": "c"}}]}, True),
        ({"task": "t", "source": {"connection": "c"}}, False),
    ],
)
def test_the_schema_distinguishes_taps_and_tasks(document: Any, is_good: bool) -> None:
    assert Draft202012Validator(json.loads(text())).is_valid(document) is is_good
