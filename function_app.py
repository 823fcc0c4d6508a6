"""The function app: every task of the configuration folder as one function."""

import os
from collections.abc import Sequence
from pathlib import Path

from functions.startup import app_with, problems_of
from shared.errors import Problem

problems: Sequence[Problem] = ()
"""What keeps the app from its start; the local host stops for them."""

try:
    # Import lazily: a package that is missing is a problem like any other.
    from functions.composition import compose

    # Relative to this file, because the host chooses its current folder.
    app = compose(Path(__file__).parent / os.environ.get("BUSWAY_CONFIG", "config"), os.environ)
except Exception as error:  # noqa: BLE001 - the app reports it
    problems = problems_of(error)
    app = app_with(problems)
