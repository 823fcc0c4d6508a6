"""
The test suite of JSON Schema, draft 2020-12: all required tests, and the optional ones about patterns and numbers.

The file in `suites` has the suite of one commit with its licence (MIT); nothing is fetched. Left out are the optional
tests of `format`, which rejects nothing here, of other drafts, and of `dependencies`, which this draft does not have.
"""

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urljoin

import pytest

from shared.editors.content.json_schema import JsonSchema, load_schema
from shared.editors.options import FOLDER
from shared.errors import MessageRejected

SUITE = json.loads(gzip.decompress((Path(__file__).parent / "suites/json-schema-2020-12.json.gz").read_bytes()))
FILES = [(kind, name) for kind in ("required", "optional") for name in SUITE[kind]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the suite has on a web server: schemas with the address as their `$id`."""
    made = tmp_path_factory.mktemp("schemas")
    for number, (address, schema) in enumerate(SUITE["remotes"].items()):
        identity = urljoin(address, schema.get("$id", address))
        (made / f"remote{number}.json").write_text(json.dumps({**schema, "$id": identity}))
        if identity != address:
            (made / f"other{number}.json").write_text(json.dumps({"$id": address, "$ref": identity}))
    return made


def load(folder: Path, schema: Any) -> JsonSchema:
    (folder / "schema.json").write_text(json.dumps(schema))
    return load_schema("schema.json", cast("Any", SimpleNamespace(context={FOLDER: folder})))


def is_valid(schema: JsonSchema, value: Any) -> bool:
    try:
        schema.check(json.dumps(value).encode())
    except MessageRejected:
        return False
    return True


def test_there_are_1299_required_tests() -> None:
    assert sum(len(group["tests"]) for groups in SUITE["required"].values() for group in groups) == 1299


@pytest.mark.parametrize(("kind", "name"), FILES)
def test_suite(folder: Path, kind: str, name: str) -> None:
    wrong = []
    for group in SUITE[kind][name]:
        schema = load(folder, group["schema"])
        wrong += [
            f"{group['description']}: {each['description']}"
            for each in group["tests"]
            if is_valid(schema, each["data"]) != each["valid"]
        ]
    assert wrong == []
