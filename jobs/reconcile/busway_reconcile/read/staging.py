"""Download of a journal from a storage account, where Spark cannot read it: a laptop, Azurite, Container Apps."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import BlobProperties, BlobServiceClient, ContainerClient

from busway_reconcile.journal.address import ADDRESS_FILE, address_file, address_of, check_address
from busway_reconcile.journal.hours import hour_of, start_of
from busway_reconcile.read.capture import CAPTURED, SUFFIX, convert
from busway_reconcile.read.files import hour_in
from busway_reconcile.storage import StoredFile

_CONCURRENT = 16
_PIECE_BYTES = 16 << 20
_PREFIX = "task="
_LONGEST_NAME = 200
"""Bytes of a name; file systems take 255, and some files get a suffix."""


class JournalUnreachable(OSError):
    """The container cannot be listed or read; the message has its URL and the error."""


def container(journal: str, connection_string: str | None, **patience: Any) -> tuple[ContainerClient, str]:  # noqa: ANN401 - what the SDK takes
    """
    Return the container of the URL *journal*, and the prefix of the blob names; *patience* are options of the client.

    Shape:   https://ACCOUNT.blob.core.windows.net/CONTAINER[/PREFIX][?SAS]. With a *connection_string* its account is
             used, whatever the host of the URL; without, the URL's SAS, or else the identity of Azure's SDK.
    """
    parts = urlsplit(journal)
    path = parts.path.strip("/").split("/")
    if connection_string is not None:
        # Azurite has the account in the path: http://127.0.0.1:10000/devstoreaccount1/journal.
        account = urlsplit(BlobServiceClient.from_connection_string(connection_string).url).path.strip("/")
        path = path[1:] if path[0] in {account, "devstoreaccount1"} else path
    if not path or not path[0]:
        raise JournalUnreachable(f"{parts.netloc}: the URL names no container; expected one after the host")
    name, prefix = path[0], "/".join(path[1:])
    if connection_string is not None:
        return ContainerClient.from_connection_string(connection_string, name, **patience), prefix
    account = f"{parts.scheme}://{parts.netloc}"
    if parts.query:
        return ContainerClient(account, name, credential=parts.query, **patience), prefix
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - needed only without key and SAS

    return ContainerClient(account, name, credential=DefaultAzureCredential(), **patience), prefix


def path_below(folder: Path, name: str) -> Path:
    """
    Return the path of the file *name* below *folder*; raises JournalUnreachable if it would be elsewhere.

    A server, or a writer of the container, chooses the names of blobs.
    """
    parts = name.split("/")
    is_plain = all(
        part not in {"", ".", ".."} and len(part.encode(errors="replace")) <= _LONGEST_NAME for part in parts
    )
    # On Windows a backslash separates folders.
    if not is_plain or "\\" in name or not name.isprintable():
        raise JournalUnreachable(f"the container lists {name[:100]!r}, which is no name of a file below a folder")
    return folder.joinpath(*parts)


def listed(client: ContainerClient, start: str) -> Iterator[BlobProperties]:
    """Yield the blobs whose names begin with *start*; raises JournalUnreachable, or an error of the SDK."""
    try:
        yield from client.list_blobs(name_starts_with=start)
    except TypeError as error:
        # azure-storage-blob 12.31 fails so at an error without a message: that of a proxy, or of another server.
        raise JournalUnreachable(f"{client.url.split('?')[0]}: the answer is not a storage account's") from error


def stage(
    client: ContainerClient,
    prefix: str,
    folder: Path,
    *,
    hours: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> int:
    """
    Download the journal's new and changed files to *folder* and return their number.

    A file that grows meanwhile is read up to the length that was listed: an append blob never changes what it has.
    Files that Capture wrote are converted to journal files; their problems are kept in CAPTURED for the run.
    Shape:   *hours* (2026-11-20T23) restricts the files to these hours; None takes all.
    Raises:  JournalUnreachable, WrongJournal if *folder* has files of another one.
    """
    _check_journal(folder, address_of(f"{client.url}/{prefix}"))
    wanted = None if hours is None else set(hours)
    start = f"{prefix}/{_PREFIX}" if prefix else _PREFIX
    since = None if not wanted else start_of(min(wanted))
    try:
        files = (blob for blob in listed(client, start) if not _is_folder(blob))
        blobs = [blob for blob in files if wanted is None or hour_in(str(blob.name)) in wanted]
        new = [blob for blob in blobs if not _is_downloaded(blob, folder, prefix)]
        new_of_capture = [blob for blob in _captured(client, prefix, since) if not _is_converted(blob, folder)]
        with ThreadPoolExecutor(_CONCURRENT) as pool:
            for done, _ in enumerate(pool.map(lambda blob: _download(client, blob, folder, prefix), new), 1):
                if done % 100 == 0:
                    progress(f"{done} of {len(new)} journal files")
            list(pool.map(lambda blob: _convert(client, blob, folder), new_of_capture))
    except AzureError as error:
        raise JournalUnreachable(f"{client.url.split('?')[0]}: {type(error).__name__}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        text = f"{client.url.split('?')[0]}: lists the same name as a file and as a folder"
        raise JournalUnreachable(text) from error
    return len(new) + len(new_of_capture)


def delete_unchanged(client: ContainerClient, prefix: str, name: str, downloaded: StoredFile) -> bool:
    """
    Delete the file *name* of the journal if it still is what was *downloaded*; return whether it is gone.

    A file that Capture wrote is not in the container by this name: it stays. Raises JournalUnreachable.
    """
    blob = client.get_blob_client(f"{prefix}/{name}" if prefix else name)
    try:
        found = blob.get_blob_properties()
        is_same = found.size == downloaded.size
        if not is_same or round(found.last_modified.timestamp()) != round(downloaded.modified / 1000):
            return False
        blob.delete_blob(etag=found.etag, match_condition=MatchConditions.IfNotModified)
    except ResourceNotFoundError:
        return True
    except ResourceModifiedError:
        return False
    except AzureError as error:
        raise JournalUnreachable(
            f"{client.url.split('?')[0]}: {name} cannot be deleted, {type(error).__name__}"
        ) from error
    return True


def _check_journal(folder: Path, address: str) -> None:
    file = folder / ADDRESS_FILE
    if file.is_file():
        check_address(file.read_text(encoding="utf-8"), address, str(folder))
    else:
        _put(file, address_file(address).encode())


def _is_folder(blob: BlobProperties) -> bool:
    # Accounts with a hierarchical namespace list folders as empty blobs.
    return not blob.size and not str(blob.name).endswith(".jsonl.gz")


def _local(blob: BlobProperties, folder: Path, prefix: str) -> Path:
    return path_below(folder, str(blob.name).removeprefix(f"{prefix}/" if prefix else ""))


def _is_downloaded(blob: BlobProperties, folder: Path, prefix: str) -> bool:
    local = _local(blob, folder, prefix)
    return (
        local.is_file()
        and local.stat().st_size == blob.size
        and round(local.stat().st_mtime) == round(blob.last_modified.timestamp())
    )


def _download(client: ContainerClient, blob: BlobProperties, folder: Path, prefix: str) -> None:
    local = _local(blob, folder, prefix)
    content = b""
    if blob.size:
        one = client.get_blob_client(blob.name)
        try:
            content = one.download_blob(
                0, blob.size, etag=blob.etag, match_condition=MatchConditions.IfNotModified
            ).readall()
        except ResourceModifiedError:
            # The blob has grown since it was listed, and may grow between two requests of one download too
            # (azure-sdk-for-python 39817): each piece is one request.
            starts = range(0, blob.size, _PIECE_BYTES)
            pieces = (one.download_blob(start, min(_PIECE_BYTES, blob.size - start)).readall() for start in starts)
            content = b"".join(pieces)
    _put(local, content, blob.last_modified.timestamp())


def _captured(client: ContainerClient, prefix: str, since: datetime | None) -> list[BlobProperties]:
    """Return the files that Capture wrote since *since*; earlier files cannot have later records."""
    return [
        blob
        for blob in client.list_blobs(name_starts_with=f"{prefix}/" if prefix else "")
        if str(blob.name).endswith(SUFFIX) and blob.size and (since is None or blob.last_modified >= since)
    ]


def _marker(blob: BlobProperties, folder: Path) -> Path:
    return folder / CAPTURED / f"{blake2b(str(blob.name).encode(), digest_size=16).hexdigest()}.json"


def _is_converted(blob: BlobProperties, folder: Path) -> bool:
    marker = _marker(blob, folder)
    return marker.is_file() and round(marker.stat().st_mtime) == round(blob.last_modified.timestamp())


def _convert(client: ContainerClient, blob: BlobProperties, folder: Path) -> None:
    changed = blob.last_modified.timestamp()
    files, kept = convert(client.download_blob(blob.name).readall(), str(blob.name))
    for name, content in files.items():
        _put(folder / name, content, changed)
    # A file without readable records makes the hour in which it was written unreliable.
    written = (hour_of(blob.last_modified),)
    dated = [problem if problem.hours else problem._replace(hours=written) for problem in kept.problems]
    _put(_marker(blob, folder), kept._replace(problems=dated).to_json().encode(), changed)


def _put(path: Path, content: bytes, changed: float | None = None) -> None:
    """Write a file, changed at *changed*, which is whole as soon as others see it; any of its writers may come last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        part.write_bytes(content)
        if changed is not None:
            os.utime(part, (changed, changed))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
