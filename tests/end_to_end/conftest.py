"""What the tests of running apps share: the SDKs without their pauses, and storage."""

from collections.abc import Iterator

import pytest

from tests.azurite import blob_account
from tests.impatience import impatient_clients


@pytest.fixture(scope="module", autouse=True)
def _impatient_clients() -> Iterator[None]:
    with impatient_clients():
        yield


@pytest.fixture(scope="module")
def storage() -> str:
    """Return the connection string of an account that no other module uses."""
    return blob_account()
