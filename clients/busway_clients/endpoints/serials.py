"""The highest serial of each endpoint document, kept when the application restarts."""

import os
import threading
from contextlib import closing

from busway_clients.database import Database, Kind
from busway_clients.endpoints.endpoint import EndpointUnresolved
from busway_clients.errors import StoreUnavailable, UnusableFile

_FILE = Kind(
    "serials of endpoint documents",
    application_id=0x62777372,
    version=1,
    schema="CREATE TABLE IF NOT EXISTS serials (document TEXT PRIMARY KEY, serial INTEGER NOT NULL) WITHOUT ROWID",
)
_RAISE = """
    INSERT INTO serials VALUES (?, ?)
    ON CONFLICT (document) DO UPDATE SET serial = max(serial, excluded.serial) RETURNING serial
"""


class SerialFile:
    """
    A SQLite file that the applications of one machine may share; only its owner can read it.

    Somebody who can write to it can let old documents pass, so keep it where the writers of the document cannot write.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Use the file *path*, which is created with the first serial."""
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._recorded: dict[str, int] = {}

    def accept(self, document: str, serial: int) -> None:
        """
        Record *serial* if it is the highest of *document*; the record is on disk when this returns.

        Raises EndpointUnresolved if a higher serial was recorded before, or if the file cannot be used.
        """
        with self._lock:
            if self._recorded.get(document) == serial:
                return
            try:
                # Open for a moment only: serials change rarely, and a source has no end at which to close a file.
                with closing(Database(self._path, _FILE)) as database, database.transaction() as connection:
                    [(highest,)] = connection.execute(_RAISE, (document, serial)).fetchall()
            except (StoreUnavailable, UnusableFile) as error:
                raise EndpointUnresolved(f"the serials of endpoint documents cannot be used: {error}") from error
            if serial < highest:
                raise EndpointUnresolved(
                    f"{document}: an old copy: has serial {serial}, but {highest} was read before ({self._path})"
                )
            self._recorded[document] = serial
