from pathlib import Path
from typing import Literal

import pytest

from tests.mapping_table import table

DOCUMENT = Path(__file__).parents[2] / "docs/mapping.md"


@pytest.mark.parametrize("source", ["service-bus", "event-hubs"])
def test_the_table_of_the_document_is_what_happens(source: Literal["service-bus", "event-hubs"]) -> None:
    assert table(source) in DOCUMENT.read_text(encoding="utf-8"), (
        "run `python -m tests.mapping_table` and put its tables in docs/mapping.md"
    )
