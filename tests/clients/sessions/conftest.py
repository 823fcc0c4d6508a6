import pytest
from tests.clients.sessions.region import OPENED


@pytest.fixture(autouse=True)
def _closed_stores():
    yield
    while OPENED:
        OPENED.pop().close()
