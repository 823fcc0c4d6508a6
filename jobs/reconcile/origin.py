"""Which journal a folder is of: what comes from two of them is never mixed."""

import json
import re
from urllib.parse import urlsplit

NOTE = "journal.json"
"""The file that says it, in a folder with a journal brought from elsewhere and beside what was made of one."""

_ACCOUNT = re.compile(r"([a-z0-9]+)(?:-secondary)?\.(?:[a-z0-9.-]+\.)?(?:blob|dfs)\.")
_EMULATED = "devstoreaccount1/"


class AnotherJournal(OSError):
    """A folder is of another journal than the one that is to be read; the message names all three."""


def address_of(journal: str) -> str:
    """Return *journal* in a way that is the same for the URL of a container and for what Spark calls it (abfss)."""
    parts = urlsplit(journal)
    if parts.scheme in ("http", "https"):
        host, path = parts.netloc, parts.path
    elif parts.scheme in ("abfs", "abfss"):
        container, _, host = parts.netloc.rpartition("@")
        path = f"{container}{parts.path}"
    else:
        return journal.rstrip("/")
    account = _ACCOUNT.match(host.lower())
    name = path.strip("/")
    # The emulator is another one at each port; its account stands in the path.
    return name if name.startswith(_EMULATED) else f"{account[1] if account else host.lower()}/{name}"


def note_of(address: str) -> str:
    """Return what the file NOTE says of a folder with what comes from *address*."""
    return json.dumps({"journal": address}) + "\n"


def check_note(note: str, address: str, folder: str) -> None:
    """Raise AnotherJournal if *folder*, of which *note* tells, is not of *address*."""
    known = json.loads(note)["journal"]
    if known != address:
        raise AnotherJournal(
            f"{folder}: it is of the journal {known}, and this is {address}; expected a folder for each"
        )
