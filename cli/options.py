"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Option("--config", envvar="BUSWAY_CONFIG", help="The folder with connections.yaml.")]
