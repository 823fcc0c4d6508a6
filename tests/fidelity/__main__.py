"""Print the table of docs/fidelity.md."""

import tempfile
from pathlib import Path

from tests.fidelity.journeys import observe
from tests.fidelity.table import table

with tempfile.TemporaryDirectory() as folder:
    print(table(observe(Path(folder))))  # noqa: T201 - this is what the module is run for
