"""Where the files of a suite are."""

import json
import os
from pathlib import Path
from typing import Any

_EXCERPTS = Path(__file__).parent / "excerpts"
_FOLDER = os.environ.get("BUSWAY_SUITES")


def files(repository: str, pattern: str) -> list[Path]:
    """Return the files of a suite: of its checkout if there is one, else of the excerpt."""
    places = [Path(_FOLDER) / repository] if _FOLDER else []
    found = [sorted(place.glob(pattern)) for place in (*places, _EXCERPTS / repository)]
    return next((each for each in found if each), [])


def documents(repository: str, pattern: str) -> list[tuple[str, Any]]:
    """Return the JSON in these files, each with its name."""
    return [(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in files(repository, pattern)]
