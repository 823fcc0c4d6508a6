"""A lease on the results: two runs that publish at the same time would leave the records of an hour twice."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.storage.blob import BlobLeaseClient, ContainerClient

NAME = "lease"

_SECONDS = 60
"""How long a lease lasts after its holder was killed."""
_RENEWED_EVERY = 15
_ASKED_EVERY = 10
_LONGEST_WAIT = 3600


class LeaseLost(OSError):
    """Another run holds the lease, or may hold it by now."""


@contextmanager
def leased(
    client: ContainerClient, prefix: str, progress: Callable[[str], None], longest_wait: float = _LONGEST_WAIT
) -> Iterator[Callable[[], None]]:
    """
    Hold the lease on the blob NAME below *prefix*; yield a function that raises LeaseLost if it is no longer held.

    Units:   *longest_wait* for another run in seconds. Raises LeaseLost, AzureError.
    """
    blob = client.get_blob_client(f"{prefix}/{NAME}" if prefix else NAME)
    with suppress(ResourceExistsError):
        blob.upload_blob(b"", overwrite=False)
    lease = BlobLeaseClient(blob)
    until = time.monotonic() + longest_wait
    while True:
        try:
            lease.acquire(_SECONDS)
            break
        except ResourceExistsError as error:
            if time.monotonic() >= until:
                raise LeaseLost(f"{blob.blob_name}: another run still holds the lease") from error
        progress("waiting for another run")
        time.sleep(_ASKED_EVERY)
    held_until = [time.monotonic() + _SECONDS]
    is_over = Event()

    def renew() -> None:
        while not is_over.wait(_RENEWED_EVERY):
            asked = time.monotonic()
            with suppress(AzureError):
                lease.renew()
                held_until[0] = asked + _SECONDS

    def check() -> None:
        if time.monotonic() >= held_until[0]:
            raise LeaseLost(f"{blob.blob_name}: the lease could not be renewed; nothing is published")

    renewing = Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield check
    finally:
        is_over.set()
        renewing.join()
        with suppress(AzureError):
            lease.release()
