import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from cli.commands.schema import text


def test_the_schema_accepts_the_keys_of_a_task() -> None:
    assert {"task", "source", "routes", "rejects", "ttl"} <= json.loads(text("task"))["$defs"]["TaskFile"][
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
    assert Draft202012Validator(json.loads(text("task"))).is_valid(document) is is_good
