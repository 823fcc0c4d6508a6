"""The journal of an app as commands read it: where it is, and its files of some hours on this machine."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cli.output import waits_for
from cli.places import line_of
from shared.errors import ConfigError, Problem, TargetUnavailable

if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

_DOWNLOADS = Path("build/trace")
_HOUR = "%Y-%m-%dT%H"
_STORAGE = "AzureWebJobsStorage"
_SCOPE = "https://storage.azure.com/.default"
# Somebody waits for it: ten seconds are enough to say that there is no answer.
_PATIENCE = {"connection_timeout": 4, "read_timeout": 6, "retry_connect": 1, "retry_read": 0, "initial_backoff": 1}


def journal_at(journal: str | None, folder: Path) -> tuple[str, str | None]:
    """
    Return the address of the journal, and the connection string of its account if a setting has one.

    Raises ConfigError.
    """
    if journal is not None:
        if "://" not in journal and not Path(journal).is_dir():
            hint = "expected a folder with task=… below it, or the URL of a container"
            raise ConfigError([Problem(journal, "folder not found", hint)])
        # The URL of a container in Azurite has the account in its path.
        is_emulated = urlsplit(journal).path.startswith("/devstoreaccount1/")
        return journal, os.environ.get(_STORAGE) if is_emulated else None
    from shared.stores.storage_account import container_url
    from shared.tasks.files import JOURNAL, load

    kept = load(folder).journal
    blob = None if kept is None else kept.container
    if blob is None:
        hint = "add `blob`, or `capture` to the event hub, or use --journal PATH|URL"
        raise ConfigError([Problem(str(folder / JOURNAL), "names no blob container", hint)])
    return container_url(blob.setting, os.environ, blob.container), os.environ.get(blob.setting) or None


def check_answers(address: str, storage: str | None) -> None:
    """
    Raise TargetUnavailable if the container of `journal_at` does not answer or refuses.

    The job itself is patient, as a night must be. Only Spark knows how to sign in at other addresses.
    """
    if not address.startswith(("http://", "https://")):
        return
    from azure.core.exceptions import AzureError

    from busway_reconcile.read.staging import JournalUnreachable, listed

    client, prefix = _opened(address, storage)
    try:
        next(listed(client, prefix), None)
    except JournalUnreachable as error:
        raise TargetUnavailable(str(error)) from error
    except AzureError as error:
        raise TargetUnavailable(f"{_url(client)}: {type(error).__name__}") from error


def removed_taps(folder: Path) -> list[str]:
    """Return the taps that journal.yaml in *folder* lists as removed, if there is one; raises ConfigError."""
    from shared.tasks.files import JOURNAL, load

    kept = load(folder).journal if (folder / JOURNAL).is_file() else None
    return [] if kept is None else list(kept.removed_taps)


def hours_between(begin: datetime, end: datetime) -> Sequence[str]:
    """Return the hours from *begin* to *end*, both included, as 2026-11-20T23."""
    first = begin.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    count = int((end - first) / timedelta(hours=1)) + 1 if first <= end else 0
    return tuple(f"{first + timedelta(hours=number):{_HOUR}}" for number in range(count))


def journal_files(journal: str | None, folder: Path, hours: Sequence[str]) -> list[Path]:
    """
    Return the files of *hours* in the journal of `journal_at`; those of a container are downloaded first.

    Raises ConfigError, TargetUnavailable.
    """
    from shared.journal.search import files_in

    address, storage = journal_at(journal, folder)
    if "://" not in address:
        return files_in(Path(address), hours)
    from busway_reconcile.read.staging import JournalUnreachable, stage

    client, prefix = _opened(address, storage)
    os.umask(0o077)  # the files name messages
    here = _folder_of(client, prefix)
    try:
        stage(client, prefix, here, hours=hours)
    except JournalUnreachable as error:
        raise TargetUnavailable(str(error)) from error
    return files_in(here, hours)


def files_downloaded_before(journal: str | None, folder: Path, hours: Sequence[str]) -> list[Path]:
    """Return the files of *hours* that earlier commands have downloaded, for when the container gives no answer."""
    from busway_reconcile.read.staging import container
    from shared.journal.search import files_in

    return files_in(_folder_of(*container(*journal_at(journal, folder))), hours)


def _opened(address: str, storage: str | None) -> tuple["ContainerClient", str]:
    """Return the client of a container, and the prefix in it; raises TargetUnavailable without a token."""
    from azure.core.exceptions import ClientAuthenticationError

    from busway_reconcile.read.staging import container

    client, prefix = container(address, storage, **_PATIENCE)
    waits_for(f"the journal in {_url(client)}")
    if hasattr(client.credential, "get_token"):
        try:
            # The client itself would ask for one again and again, and each time takes many seconds.
            client.credential.get_token(_SCOPE)
        except ClientAuthenticationError as error:
            raise TargetUnavailable(f"{_url(client)}: {line_of(error)}") from error
    return client, prefix


def _folder_of(client: "ContainerClient", prefix: str) -> Path:
    return _DOWNLOADS / blake2b(f"{_url(client)}/{prefix}".encode(), digest_size=8).hexdigest()


def _url(client: "ContainerClient") -> str:
    return client.url.partition("?")[0]
