"""Runs the command: `busway`, or `python -m busway`."""

import os
import sys

from busway import FOLDERS, PACKAGES


def main() -> None:
    """Put the app's folders on the path of this process and its children, as the Functions host does, and run."""
    sys.path[:0] = [folder for folder in FOLDERS if folder not in sys.path]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (PACKAGES, os.environ.get("PYTHONPATH"))))
    from cli.main import app  # noqa: PLC0415 - it is found from here on

    app(prog_name="busway")


if __name__ == "__main__":
    main()
