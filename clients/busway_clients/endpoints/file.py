"""The endpoint document in a file, for example on a share."""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, Unpack

from busway_clients.database import Database, Kind
from busway_clients.endpoints.document import LONGEST_DOCUMENT_BYTES, read_document
from busway_clients.endpoints.endpoint import NAMESPACES, Answer, EndpointUnresolved
from busway_clients.endpoints.limited_call import LimitedCall
from busway_clients.endpoints.signature import is_signed, verify
from busway_clients.errors import StoreUnavailable


class DocumentOptions(TypedDict, total=False):
    """
    How a document is read, from wherever it is published.

    *public_keys*: PEM by id, of which one must have signed the document. *domains*: where namespaces may be. *serials*:
    a file of the application that keeps the highest serial when it restarts; a signed document needs either this file
    or the key `expires`: without both, an old copy would pass. *timeout_seconds*: the limit of a whole read, 10 by
    default. *now*: the time in seconds since 1970.
    """

    public_keys: Mapping[str, bytes] | None
    domains: Sequence[str]
    serials: str | os.PathLike[str] | None
    timeout_seconds: float
    now: Callable[[], float]


class DocumentSource(ABC):
    """The endpoint document at *where*: its answers for *role*: "send", "receive", or another role of the document."""

    def __init__(
        self,
        where: str,
        role: str,
        give_up: Callable[[], None] = lambda: None,
        *,
        public_keys: Mapping[str, bytes] | None = None,
        domains: Sequence[str] = NAMESPACES,
        serials: str | os.PathLike[str] | None = None,
        timeout_seconds: float = 10.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Call *give_up* to let a fetch end soon that takes too long."""
        self._where = where
        self._role = role
        self._public_keys = public_keys
        self._domains = domains
        self._serials = None if serials is None else SerialFile(serials)
        self._timeout = timeout_seconds
        self._now = now
        self._fetching = LimitedCall(self._fetch, timeout_seconds, give_up)

    @abstractmethod
    def _fetch(self) -> bytes:
        """Return the current content; raises EndpointUnresolved."""

    def read(self) -> Answer:
        """Return the current answer; raises EndpointUnresolved."""
        try:
            content = self._fetching.result()
        except TimeoutError as error:
            raise EndpointUnresolved(f"{self._where}: cannot be read, {error}") from error
        now = datetime.fromtimestamp(self._now(), UTC)
        if self._public_keys is not None:
            content = verify(content, self._public_keys, self._where)
        elif is_signed(content, self._where):
            raise EndpointUnresolved(f"{self._where}: is signed; pass public_keys to verify it")
        document = read_document(content, self._where, now, domains=self._domains)
        answer = document.answer(self._role, self._where)
        if self._serials is not None:
            self._serials.accept(self._where, document.serial)
        elif self._public_keys is not None and document.expires is None:
            raise EndpointUnresolved(
                f"{self._where}: is signed without expires, so that an old copy would pass after a restart; pass "
                "serials=PATH to keep the highest serial, or sign a document with expires"
            )
        return answer


class FileSource(DocumentSource):
    """The endpoint document in a file; a share that does not answer in time is an error of the source."""

    def __init__(self, path: str | Path, role: str, **options: Unpack[DocumentOptions]) -> None:
        """Read *path* for *role*."""
        self._path = Path(path).absolute()
        super().__init__(str(self._path), role, **options)

    def _fetch(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                before = os.fstat(file.fileno())
                content = file.read(LONGEST_DOCUMENT_BYTES + 1)
                after = os.fstat(file.fileno())
        except OSError as error:
            raise EndpointUnresolved(f"{self._path}: cannot be read, {error.strerror or error}") from error
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            raise EndpointUnresolved(f"{self._path}: changed while it was read; replace it atomically")
        return content


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
            except StoreUnavailable as error:
                raise EndpointUnresolved(f"the serials of endpoint documents cannot be used: {error}") from error
            if serial < highest:
                raise EndpointUnresolved(
                    f"{document}: an old copy: has serial {serial}, but {highest} was read before ({self._path})"
                )
            self._recorded[document] = serial
