"""What the tests of running apps share: the SDKs without their pauses, and storage accounts of one emulator."""

from collections.abc import Iterator

import pytest

from tests.azurite import running_accounts
from tests.impatience import impatient_clients

_ACCOUNTS = 60


@pytest.fixture(scope="module", autouse=True)
def _impatient_clients() -> Iterator[None]:
    with impatient_clients():
        yield


@pytest.fixture(scope="session")
def _accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Iterator[str]]:
    with running_accounts(tmp_path_factory.mktemp("azurite"), _ACCOUNTS) as connection_strings:
        yield iter(connection_strings)


@pytest.fixture(scope="module")
def storage(_accounts: Iterator[str]) -> str:
    """Return the connection string of an account that no other module uses."""
    return next(_accounts)
