"""The address of a journal, kept beside everything made from it: two journals are never mixed."""

import json
import re
from urllib.parse import urlsplit

ADDRESS_FILE = "journal.json"
"""The file that holds the address, in a downloaded journal and beside the compacted hours."""

_ACCOUNT = re.compile(r"([a-z0-9]+)(?:-secondary)?\.(?:[a-z0-9.-]+\.)?(?:blob|dfs)\.")
_EMULATED = "devstoreaccount1/"


class WrongJournal(OSError):
    """A folder belongs to another journal than the one to be read; the message names all three."""


def address_of(journal: str) -> str:
    """Return an address of *journal* that is the same for its https URL and for its abfss address."""
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
    # The emulator's port may change between runs; its account is in the path.
    return name if name.startswith(_EMULATED) else f"{account[1] if account else host.lower()}/{name}"


def address_file(address: str) -> str:
    """Return the content of ADDRESS_FILE for *address*."""
    return json.dumps({"journal": address}) + "\n"


def check_address(content: str, address: str, folder: str) -> None:
    """Raise WrongJournal if the ADDRESS_FILE of *folder* has another address than *address*."""
    known = json.loads(content)["journal"]
    if known != address:
        raise WrongJournal(
            f"{folder}: belongs to the journal {known}, got {address}; use a folder of its own for each journal"
        )
