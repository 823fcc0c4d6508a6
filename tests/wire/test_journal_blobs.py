"""The journal's blobs on Azurite: what lands, where, once, and what happens when the answer says otherwise."""

import asyncio
import gzip
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob import ContainerClient as SyncContainerClient
from azure.storage.blob.aio import ContainerClient

from shared.clock import ManualClock
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.blob import BlobSink
from shared.journal.record import Role
from shared.journal.sink import Stream
from shared.stores.container import BlobContainer
from shared.stores.storage_account import open_container
from tests.wire.sending import closing

type Step = Callable[[], Awaitable[object]]

STREAM = Stream("copy", Role.SOURCE)
START = datetime(2026, 11, 21, 13, 59, 58, tzinfo=UTC)


READ_MEANWHILE = (
    b'<?xml version="1.0" encoding="utf-8"?><Error><Code>BlobModifiedWhileReading</Code>'
    b"<Message>The blob has been modified while being read.</Message></Error>"
)


def member(text: str) -> bytes:
    return gzip.compress(text.encode() + b"\n", mtime=0)


class Transport(AioHttpTransport):  # type: ignore[misc] # the SDK loads it when asked for
    """The network, which loses chosen requests or answers."""

    def __init__(self) -> None:
        super().__init__()
        self.lost_requests = 0
        self.lost_answers = 0
        self.lost_looks = 0
        self.read_meanwhile = 0
        self.appends = 0
        self.requests: list[str] = []
        self.before_append: Callable[[Any], Awaitable[None]] | None = None

    async def send(self, request: Any, **options: Any) -> Any:
        self.requests.append(request.method)
        is_append = "comp=appendblock" in request.url
        if is_append and self.before_append is not None:
            act, self.before_append = self.before_append, None
            await act(request)
        if is_append and self.lost_requests:
            self.lost_requests -= 1
            raise ServiceRequestError("cut")
        if request.method == "HEAD" and self.lost_looks:
            self.lost_looks -= 1
            raise ServiceResponseError("cut")
        self.appends += is_append
        is_read = is_append and self.read_meanwhile > 0
        if is_read:
            self.read_meanwhile -= 1
            request.headers["x-ms-blob-condition-appendpos"] = "999999999"
        response = await super().send(request, **options)
        if is_read:
            # What Azure answers, which Azurite never does.
            await response.load_body()
            response.status_code, response._content = 409, READ_MEANWHILE
            response.headers = {**response.headers, "x-ms-error-code": "BlobModifiedWhileReading"}
        if is_append and self.lost_answers:
            self.lost_answers -= 1
            raise ServiceResponseError("cut")
        return response


class Journal:
    """A sink on a container of its own, and a look at what is in it."""

    def __init__(self, storage: str, **options: Any) -> None:
        self.name = f"journal-{uuid.uuid4().hex}"
        self.storage = storage
        self.transport = Transport()
        self.clock = ManualClock(START)
        self.sink = self.another(**options)

    def another(self, **options: Any) -> BlobSink:
        def opened() -> BlobContainer:
            client = ContainerClient.from_connection_string(
                self.storage, self.name, retry_total=0, transport=self.transport
            )
            return BlobContainer(client, errors_name="journal ")

        return BlobSink(opened, "vm.1", self.clock, **options)

    def run(self, *steps: Step) -> list[object]:
        async def all_steps() -> list[object]:
            try:
                return [await step() for step in steps]
            finally:
                await self.sink.close()

        return asyncio.run(all_steps())

    def append(self, text: str, sink: BlobSink | None = None) -> Step:
        return lambda: (sink or self.sink).append(STREAM, member(text))

    def files(self) -> dict[str, list[str]]:
        container = SyncContainerClient.from_connection_string(self.storage, self.name)
        return {
            blob.name: gzip.decompress(container.download_blob(blob.name).readall()).decode().split()
            for blob in container.list_blobs()
            if blob.size
        }


@pytest.fixture
def journal(storage: str) -> Journal:
    return Journal(storage)


FIRST = "task=copy/date=2026-11-21/hour=13/role=source/vm1-1795269598000.jsonl.gz"


def test_flushes_are_members_of_one_blob_and_the_container_is_made(journal: Journal) -> None:
    journal.run(journal.append("a"), journal.append("b"))
    assert journal.files() == {FIRST: ["a", "b"]}
    assert journal.sink.instance == "vm1-1795269598000"


def test_a_new_hour_has_a_new_blob(journal: Journal) -> None:
    async def an_hour_begins() -> None:
        journal.clock.advance(2)

    journal.run(journal.append("a"), an_hour_begins, journal.append("b"))
    second = "task=copy/date=2026-11-21/hour=14/role=source/vm1-1795269600000.jsonl.gz"
    assert journal.files() == {FIRST: ["a"], second: ["b"]}


def test_a_full_blob_is_followed_by_another(storage: str) -> None:
    journal = Journal(storage, block_limit=2)
    journal.run(*(journal.append(text) for text in "abc"))
    assert list(journal.files().values()) == [["a", "b"], ["c"]]


def test_roles_and_tasks_have_blobs_of_their_own(journal: Journal) -> None:
    journal.run(
        journal.append("a"),
        lambda: journal.sink.append(Stream("copy", Role.TARGET), member("b")),
        lambda: journal.sink.append(Stream("other", Role.SOURCE), member("c")),
    )
    assert {name.split("/")[0] + name.split("/")[3] for name in journal.files()} == {
        *("task=copyrole=source", "task=copyrole=target", "task=otherrole=source"),
    }


def test_an_append_whose_answer_is_lost_is_not_made_again(journal: Journal) -> None:
    async def lose() -> None:
        journal.transport.lost_answers = 1

    journal.run(journal.append("a"), lose, journal.append("b"), journal.append("c"))
    assert journal.files() == {FIRST: ["a", "b", "c"]}


@pytest.mark.parametrize(("later", "expected"), [("bc", "abc"), ("dc", "abdc")])
def test_when_not_even_the_look_is_answered_the_next_attempt_looks_first(
    journal: Journal, later: str, expected: str
) -> None:
    async def lose() -> None:
        journal.transport.lost_answers = 1
        journal.transport.lost_looks = 1

    async def fails() -> None:
        with pytest.raises(TargetUnavailable, match="ServiceResponseError"):
            await journal.append("b")()

    journal.run(journal.append("a"), lose, fails, *(journal.append(text) for text in later))
    assert journal.files() == {FIRST: list(expected)}


def test_a_request_that_was_not_sent_fails_and_can_be_made_again(journal: Journal) -> None:
    async def lose() -> None:
        journal.transport.lost_requests = 1

    async def fails() -> None:
        with pytest.raises(TargetUnavailable, match="ServiceRequestError"):
            await journal.append("b")()

    journal.run(journal.append("a"), lose, fails, journal.append("b"))
    assert journal.files() == {FIRST: ["a", "b"]}


def test_an_append_while_somebody_lists_the_blob_is_made_again_and_is_no_outage(journal: Journal) -> None:
    """FN10: a refresh of the listing in the portal is enough."""

    async def list_for_a_while() -> None:
        journal.transport.read_meanwhile = 3

    journal.run(journal.append("a"), list_for_a_while, journal.append("b"), journal.append("c"))
    assert journal.files() == {FIRST: ["a", "b", "c"]}
    assert journal.transport.appends == 6


def test_an_append_that_wrote_and_was_answered_as_a_conflict_is_there_once(journal: Journal) -> None:
    async def write_and_say_no() -> None:
        async def write(_: Any) -> None:
            async with ContainerClient.from_connection_string(journal.storage, journal.name) as other:
                await other.get_blob_client(FIRST).append_block(member("b"))

        journal.transport.before_append, journal.transport.read_meanwhile = write, 1

    journal.run(journal.append("a"), write_and_say_no, journal.append("b"), journal.append("c"))
    assert journal.files() == {FIRST: ["a", "b", "c"]}


def test_a_leased_blob_is_appended_to_although_others_read_it(journal: Journal) -> None:
    async def append() -> bytes:
        async with (
            ContainerClient.from_connection_string(
                journal.storage, journal.name, transport=journal.transport
            ) as client,
            BlobContainer(client).leased("ledger") as blob,
        ):
            journal.transport.read_meanwhile = 2
            await blob.append(b"line")
            return await blob.read()

    assert asyncio.run(append()) == b"line"


def test_a_part_of_a_blob_that_grows_meanwhile_is_read_in_pieces(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FN61: a download in several requests fails when the blob has changed between two of them."""
    monkeypatch.setattr("shared.stores.container._PIECE_BYTES", 4)

    async def read() -> tuple[bytes, bytes, bytes]:
        async with ContainerClient.from_connection_string(
            journal.storage, journal.name, max_single_get_size=4, max_chunk_get_size=4
        ) as client:
            blobs = BlobContainer(client)
            blob = client.get_blob_client(FIRST)
            size = (await blob.get_blob_properties()).size
            return (
                (await blobs.part(FIRST, 0, size)),
                (await blobs.tail(FIRST, 3)).content,
                await blobs.part(FIRST, size, 9),
            )

    _, found = journal.run(journal.append("abcdefghijkl"), read)
    assert found == (member("abcdefghijkl"), member("abcdefghijkl")[3:], b"")


def test_a_blob_written_by_another_process_is_not_changed(journal: Journal) -> None:
    async def intrude() -> None:
        async with ContainerClient.from_connection_string(journal.storage, journal.name) as other:
            await other.get_blob_client(FIRST).append_block(member("x"))

    async def later() -> None:
        journal.clock.advance(0.001)

    journal.run(journal.append("a"), intrude, later, journal.append("b"), journal.append("c"))
    assert list(journal.files().values()) == [["a", "x"], ["b", "c"]]


def test_two_instances_of_one_name_that_start_in_one_millisecond_do_not_share_a_blob(journal: Journal) -> None:
    other = journal.another()
    journal.run(journal.append("a"), journal.append("b", other), journal.append("c"), other.close)
    assert list(journal.files().values()) == [["a", "c"], ["b"]]


def test_a_blob_that_was_deleted_is_followed_by_another(journal: Journal) -> None:
    async def delete() -> None:
        async with ContainerClient.from_connection_string(journal.storage, journal.name) as other:
            await other.delete_blob(FIRST)
        journal.clock.advance(0.001)

    journal.run(journal.append("a"), delete, journal.append("b"))
    assert list(journal.files().values()) == [["b"]]


def test_appends_side_by_side_share_requests(journal: Journal) -> None:
    async def together() -> None:
        await asyncio.gather(*(journal.append(text)() for text in "abcdefgh"))

    journal.run(journal.append("z"), together)
    assert journal.files() == {FIRST: list("zabcdefgh")}
    assert journal.transport.appends == 3  # z, then a, and what came while that was under way


def test_appends_that_fail_together_are_written_once_when_they_are_made_again(journal: Journal) -> None:
    """The answer and the look are lost: nobody knows whether the members are there, until the next attempt looks."""

    async def fails(text: str) -> None:
        with pytest.raises(TargetUnavailable):
            await journal.append(text)()

    async def together() -> None:
        first = asyncio.ensure_future(journal.append("a")())
        await asyncio.sleep(0)
        others = [asyncio.create_task(fails(text)) for text in "bcd"]
        await first
        journal.transport.lost_answers = journal.transport.lost_looks = 1
        await asyncio.gather(*others)

    async def again() -> None:
        await asyncio.gather(*(journal.append(text)() for text in "dcbe"))

    journal.run(journal.append("z"), together, again)
    ((_, texts),) = journal.files().items()
    assert sorted(texts) == sorted("zabcde")


def test_a_cancelled_caller_takes_its_member_back_and_the_others_are_written(journal: Journal) -> None:
    async def together() -> None:
        tasks = [asyncio.ensure_future(journal.append(text)()) for text in "abc"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    journal.run(journal.append("z"), together)
    assert journal.files() == {FIRST: list("zac")}


def test_a_mark_is_read_back_and_replaced(journal: Journal) -> None:
    assert journal.run(
        lambda: journal.sink.append(STREAM, member("a")),
        lambda: journal.sink.read_mark("tap"),
        lambda: journal.sink.write_mark("tap", b"1"),
        lambda: journal.sink.write_mark("tap", b"2"),
        lambda: journal.sink.read_mark("tap"),
    ) == [None, None, None, None, b"2"]


def test_a_wrong_key_is_refused_and_not_quoted(storage: str) -> None:
    wrong = storage.replace("Eby8vdM02xNO", "AAAAAAAAAAAA")
    journal = Journal(wrong)
    with pytest.raises(TargetRefused, match="role Storage Blob Data Contributor") as caught:
        journal.run(journal.append("a"))
    assert "AAAA" not in str(caught.value)


def test_an_account_that_cannot_be_reached_is_unavailable_at_once() -> None:
    away = (
        "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=YWJj;BlobEndpoint=http://127.0.0.1:9/a;"  # nobody there
    )

    async def append() -> None:
        opened = partial(open_container, "JOURNAL", {"JOURNAL": away}, "journal", errors_name="journal ")
        async with closing(BlobSink(opened, "vm")) as sink:
            await sink.append(STREAM, member("a"))

    with pytest.raises(TargetUnavailable, match=r"journal task=copy/.*: the storage account cannot be reached, "):
        asyncio.run(append())
