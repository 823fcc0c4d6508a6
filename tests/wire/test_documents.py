"""Documents in a storage account (Azurite) and in a file: one version after the other, and never two at once."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shared.errors import TargetRefused, TargetUnavailable
from shared.stores.blobs import Blob
from shared.stores.container import BlobContainer
from shared.stores.documents import Changed, Documents
from shared.stores.settings import open_documents, store_problem
from shared.stores.storage_account import open_container
from tests.wire.sending import closing

type OpenDocuments = Callable[[], Documents]


@pytest.fixture(params=["blobs", "file"])
def opening(request: pytest.FixtureRequest, storage: str, tmp_path: Path) -> OpenDocuments:
    container = request.node.name.replace("_", "-").replace("[", "-").replace("]", "").lower()[-40:].strip("-")
    settings = {"STATE": storage if request.param == "blobs" else f"file:{tmp_path / 'state.db'}"}
    assert store_problem("STATE", settings) is None
    return lambda: open_documents("STATE", settings, container)


def run[Result](opening: OpenDocuments, work: Callable[[Documents], Awaitable[Result]]) -> Result:
    async def opened() -> Result:
        documents = opening()
        try:
            return await work(documents)
        finally:
            if isinstance(documents, BlobContainer):
                await documents.close()

    return asyncio.run(opened())


def test_what_is_written_is_read_also_after_a_restart(opening: OpenDocuments) -> None:
    async def first(documents: Documents) -> str:
        assert await documents.read_all("a/b") is None
        version = await documents.write_version("a/b", b"one", None)
        assert await documents.read_all("a/b") == Blob(b"one", version)
        return await documents.write_version("a/b", b"two", version)

    async def second(documents: Documents) -> tuple[Blob | None, Blob | None]:
        return await documents.read_all("a/b"), await documents.read_all("a/c")

    version = run(opening, first)
    assert run(opening, second) == (Blob(b"two", version), None)


def test_a_writer_that_has_not_read_the_last_version_fails(opening: OpenDocuments) -> None:
    async def work(documents: Documents) -> None:
        version = await documents.write_version("a", b"one", None)
        with pytest.raises(Changed, match="document a: another"):
            await documents.write_version("a", b"other", None)
        await documents.write_version("a", b"two", version)
        with pytest.raises(Changed, match="document a: another"):
            await documents.write_version("a", b"other", version)
        found = await documents.read_all("a")
        assert found is not None
        assert found.content == b"two"

    run(opening, work)


def test_one_of_many_concurrent_writers_succeeds(opening: OpenDocuments) -> None:
    async def work(documents: Documents) -> None:
        version = await documents.write_version("a", b"", None)
        writes = [documents.write_version("a", b"%d" % number, version) for number in range(5)]
        ends = await asyncio.gather(*writes, return_exceptions=True)
        assert sorted(type(end).__name__ for end in ends) == ["Changed"] * 4 + ["str"]

    run(opening, work)


def test_an_unavailable_account_and_a_refusing_one_are_distinguished(storage: str) -> None:
    async def asked(text: str) -> None:
        async with closing(open_container("STATE", {"STATE": text}, "states", errors_name="document ")) as documents:
            await documents.read_all("a")

    with pytest.raises(TargetUnavailable, match=r"document a: .* cannot be reached, ServiceRequestError"):
        asyncio.run(
            asked("DefaultEndpointsProtocol=http;AccountName=a;AccountKey=YQ==;BlobEndpoint=http://127.0.0.1:9/a;")
        )
    with pytest.raises(TargetRefused, match=r"answers 403 .*Storage Blob Data Contributor") as raised:
        asyncio.run(asked(storage.replace("AccountKey=Eby8", "AccountKey=Abcd")))
    assert "Abcd" not in str(raised.value)


def test_an_invalid_file_and_an_unavailable_one_are_distinguished(tmp_path: Path) -> None:
    settings = {"STATE": f"file:{tmp_path / 'state.db'}"}
    (tmp_path / "state.db").write_bytes(b"no database, but long enough to be looked at" * 100)
    with pytest.raises(TargetRefused, match=r"state.db: is not a file of documents, SQLITE_NOTADB"):
        asyncio.run(open_documents("STATE", settings, "c").read_all("a"))
    (tmp_path / "state.db").unlink()
    (tmp_path / "state.db").mkdir()
    with pytest.raises(TargetUnavailable, match=r"state.db: SQLITE_CANTOPEN"):
        asyncio.run(open_documents("STATE", settings, "c").write_version("a", b"", None))
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(tmp_path / "state.db")
