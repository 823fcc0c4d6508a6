"""The transcode editor, with the schemas that its options name."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes import task_facts
from tests.unit.editors.transcoding import step, write_schemas


@pytest.fixture(scope="session")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(folder)
    return folder


@pytest.fixture(scope="session")
def transcode(schemas: Path) -> Any:
    return lambda before, after, **options: step(schemas, before, after, **options).editor(task_facts())
