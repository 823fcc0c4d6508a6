"""
The archive of Spark's classes: Java maps it into memory, instead of reading, checking and linking 20,000 classes.

`python -m busway_reconcile.archive_classes` writes it. Java ignores an archive of another Java or of other packages:
without a fitting one, a session only starts more slowly.
"""

import json
import sys
from pathlib import Path

ARCHIVE = Path(sys.prefix) / "share" / "busway" / "spark-classes.jsa"
"""Beside the packages of this interpreter, because it fits no other ones."""

LABEL = ARCHIVE.with_suffix(".json")
"""The size of the archive, and the Spark and Java that it was made with."""

# By default Java writes its warnings to standard output, which has the verdict of the job. An archive that does not fit
# needs no warning.
_WARNINGS = "-Xlog:disable -Xlog:gc*=warning,os*=warning:stderr"


def archive_in_use() -> str:
    """Return the options with which Java starts from the archive; none if it does not exist."""
    # Java checks what an archive was made for, but ends with an error if a part of it is missing.
    try:
        is_whole = json.loads(LABEL.read_text(encoding="utf-8"))["size"] == ARCHIVE.stat().st_size
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        is_whole = False
    return f'{_WARNINGS} -Xshare:auto -XX:SharedArchiveFile="{ARCHIVE}"' if is_whole else ""


def archive_to_write(path: Path) -> str:
    """Return the options with which Java writes the classes that it has loaded to *path* when it ends."""
    return f'{_WARNINGS} -XX:ArchiveClassesAtExit="{path}"'
