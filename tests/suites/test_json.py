"""JSONTestSuite (Nicolas Seriot, MIT): what must be read, what must not, and what a reader may decide."""

from pathlib import Path

import pytest

from shared.codecs.json import read, read_exact
from shared.codecs.plain_json import PlainJson
from shared.errors import MessageRejected
from tests.suites.checkouts import files

TEXTS = files("JSONTestSuite", "test_parsing/*.json")
# Rejected on purpose: what two readers could understand differently.
STRICTER = {"y_object_duplicated_key.json", "y_object_duplicated_key_and_value.json", "y_same_name_twice.json"}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
@pytest.mark.parametrize("reader", [read, read_exact, PlainJson().read], ids=["read", "exact", "plain"])
def test_a_text_is_read_or_rejected_as_it_must_be(path: Path, reader: object) -> None:
    try:
        reader(path.read_bytes())  # type: ignore[operator] # each takes bytes
        is_read = True
    except MessageRejected:
        is_read = False
    if path.name[0] != "i":
        assert is_read == (path.name[0] == "y" and path.name not in STRICTER)
