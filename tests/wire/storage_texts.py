"""Texts in a storage queue of Azurite."""

import base64
from collections.abc import Iterator

import pytest
from azure.storage.queue import QueueServiceClient

from tests.azurite import queue_account

SECONDS = 20.0
NO_QUEUE = "the queue does not exist, the storage account answers 404 QueueNotFound"


@pytest.fixture(scope="module")
def account() -> str:
    return queue_account()


@pytest.fixture
def service(account: str) -> Iterator[QueueServiceClient]:
    with QueueServiceClient.from_connection_string(account) as client:
        for queue in client.list_queues():
            client.delete_queue(queue)
        client.create_queue("orders")
        yield client


def with_another_key(account: str) -> str:
    key = account.split("AccountKey=")[1].split(";", maxsplit=1)[0]
    return account.replace(key, base64.b64encode(b"wrong").decode())
