"""The storage account and Resource Manager of the nightly timer."""

import logging
from collections.abc import Iterator

import pytest
from azure.storage.blob import ContainerClient

from tests.management import Management


@pytest.fixture
def management(monkeypatch: pytest.MonkeyPatch) -> Iterator[Management]:
    with Management() as running:
        for name, value in running.identity().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def container(storage: str, request: pytest.FixtureRequest) -> Iterator[ContainerClient]:
    name = f"c{abs(hash(request.node.name))}"
    with ContainerClient.from_connection_string(storage, name) as client:
        client.create_container()
        yield client


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "busway")
    yield
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("busway")]
    assert not [text for text in lines if "sig=" in text or "secret-4711" in text]
