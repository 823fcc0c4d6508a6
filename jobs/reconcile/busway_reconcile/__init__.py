"""Nightly job that reconciles journals; it runs on Spark 3.5 and later and imports nothing else of Busway."""

import sys
from importlib.util import find_spec


def run(*arguments: str) -> int:
    """
    Run the job, in the active Spark session if there is one, and return 0, 1 with findings or 2 if it cannot decide.

    The *arguments* are those of `busway-reconcile`; without any, those of this process.
    """
    if find_spec("pyspark") is None:
        sys.stderr.write(
            "busway-reconcile: needs a Spark: pip install 'busway-reconcile[local]', with Java 17 or later\n"
        )
        return 2
    from busway_reconcile.__main__ import main  # noqa: PLC0415 - other modules of the package need no Spark

    return main(arguments or None)
