import json
from pathlib import Path

from cli.schema import text

FILE = Path(__file__).parents[3] / "config/task.schema.json"


def test_the_schema_in_config_is_that_of_the_model() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), "run: busway schema > config/task.schema.json"


def test_the_schema_knows_the_keys_of_a_task() -> None:
    assert {"task", "source", "routes", "rejects", "ttl"} <= json.loads(text())["properties"].keys()
