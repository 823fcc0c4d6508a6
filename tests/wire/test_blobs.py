"""What editors keep in a storage account, on Azurite: bodies, tables, and the ids of what was sent."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import ContainerClient

from shared.clock import ManualClock
from shared.editors.claim_check import ClaimCheck
from shared.editors.claim_restore import ClaimRestore, ClaimRestoreStep
from shared.editors.deduplicate import Deduplicate, DeduplicateStep
from shared.editors.state.sent_ids import SharedIds
from shared.errors import TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import EditedTogether, Outcome, Output
from shared.stores.blobs import Blob, Blobs, Tail, TooLarge, Unchanged
from shared.stores.container import BlobContainer
from shared.stores.sqlite_stores import FileBlobs
from shared.stores.storage_account import open_container
from tests.fakes import JournalInMemory, OutputThatAccepts, clock_at_delivery, sleep_by
from tests.messages import delivered, message

type OpenBlobs = Callable[[], Blobs]

ORIGIN = Origin("west", "orders")


@pytest.fixture(params=["account", "file"])
def opened(request: pytest.FixtureRequest, storage: str, tmp_path: Path) -> OpenBlobs:
    """Return what opens a store with a container of its own."""

    def open_blobs() -> Blobs:
        if request.param == "file":
            return FileBlobs(tmp_path / "store.db", "blobs")
        name = "c" + hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
        return open_container("STORE", {"STORE": storage}, name)

    return open_blobs


async def close(*stores: object) -> None:
    for store in stores:
        if isinstance(store, BlobContainer | ContainerClient):
            await store.close()


def test_a_blob_is_written_read_deleted_and_distinguished_from_its_next_version(opened: OpenBlobs) -> None:
    async def run() -> None:
        blobs = opened()
        assert await blobs.read("a/b", limit=9) is None
        assert await blobs.names("a/") == []
        await blobs.write("a/b", b"one", "text/plain")
        first = await blobs.read("a/b", limit=3)
        assert isinstance(first, Blob)
        assert first.content == b"one"
        assert await blobs.read("a/b", limit=2) == TooLarge(3)
        await blobs.write("a/b", b"one", "text/plain")
        assert await blobs.read("a/b", limit=3, known_version=first.version) == Unchanged()
        await blobs.write("a/b", b"two")
        second = await blobs.read("a/b", limit=3, known_version=first.version)
        assert isinstance(second, Blob)
        assert second.content == b"two"
        await blobs.write("a/ä ö", b"")
        assert await blobs.names("a/") == ["a/b", "a/ä ö"]
        await blobs.delete("a/b")
        await blobs.delete("a/b")
        assert await blobs.names("a/") == ["a/ä ö"]
        await close(blobs)

    asyncio.run(run())


def test_appended_content_is_read_from_an_offset(opened: OpenBlobs) -> None:
    async def run() -> None:
        blobs, others = opened(), opened()
        assert await blobs.tail("log", 0) == Tail(b"", is_full=False)
        assert await blobs.append("log", b"one,")
        assert await others.append("log", b"two,")
        assert await blobs.tail("log", 0) == Tail(b"one,two,", is_full=False)
        assert await blobs.tail("log", 8) == Tail(b"", is_full=False)
        assert await blobs.append("log", b"three")
        assert await others.tail("log", 8) == Tail(b"three", is_full=False)
        await close(blobs, others)

    asyncio.run(run())


class Transport(AioHttpTransport):  # type: ignore[misc] # the SDK loads it when asked for
    """The network, which loses chosen requests or answers."""

    def __init__(self) -> None:
        super().__init__()
        self.cut = ""
        self.lost_requests = 0
        self.lost_answers = 0
        self.requests: Counter[str] = Counter()

    async def send(self, request: Any, **options: Any) -> Any:
        text = f"{request.method} {request.url}"
        self.requests["append" if "comp=appendblock" in text else request.method] += 1
        is_cut = self.cut in text
        if is_cut and self.lost_requests:
            self.lost_requests -= 1
            raise ServiceRequestError("cut")
        response = await super().send(request, **options)
        if is_cut and self.lost_answers:
            self.lost_answers -= 1
            raise ServiceResponseError("cut")
        return response


def over(transport: Transport, storage: str, name: str) -> BlobContainer:
    return BlobContainer(ContainerClient.from_connection_string(storage, name, retry_total=0, transport=transport))


class Line:
    """One instance of a task that withholds duplicates by a store, in virtual time."""

    def __init__(self, blobs: Blobs, output: Output, clock: ManualClock) -> None:
        asked = {"deduplicate": {"window": "PT2H", "store": {"setting": "S"}}}
        options = DeduplicateStep.model_validate(asked).options
        self.blobs = blobs
        editor = Deduplicate(options, SharedIds(blobs, "copy", options.window, 1000, clock))
        route = Route(Target(output, "east", "orders"))
        task = Task("copy", ORIGIN, [editor], Router([route]), None, Keep(), None)
        self.pipeline = Pipeline(task, JournalInMemory(), clock, sleep_by(clock))

    async def run(self, *batch: tuple[int, str]) -> Counter[Outcome]:
        return await self.pipeline.run([delivered(number, message_id=identity) for number, identity in batch])


def test_instances_share_the_ids_of_what_was_sent_through_restarts_and_outages(storage: str) -> None:
    async def run() -> None:
        clock, output, transport = clock_at_delivery(), OutputThatAccepts(), Transport()
        blobs = over(transport, storage, "shared-ids")
        one, two = Line(blobs, output, clock), Line(over(Transport(), storage, "shared-ids"), output, clock)
        assert await one.run((1, "a"), (2, "b"), (3, "a")) == {Outcome.SENT: 2, Outcome.FILTERED: 1}
        transport.requests.clear()
        assert await two.run((4, "b"), (5, "c")) == {Outcome.FILTERED: 1, Outcome.SENT: 1}
        assert await one.run((6, "c"), (7, "d")) == {Outcome.FILTERED: 1, Outcome.SENT: 1}
        # One question, whatever the batch, and one append.
        assert transport.requests == {"GET": 1, "append": 1}
        # Answers that are lost: what was written is written once more, and says the same.
        transport.cut, transport.lost_answers = "comp=appendblock", 2
        assert await one.run((8, "e")) == {Outcome.SENT: 1}
        # Away before and behind the send: the batch waits.
        transport.cut, transport.lost_requests = "", 3
        assert await one.run((9, "e"), (10, "f")) == {Outcome.FILTERED: 1, Outcome.SENT: 1}
        clock.advance(3600)
        three = Line(over(Transport(), storage, "shared-ids"), output, clock)
        assert await three.run(*((20 + place, each) for place, each in enumerate("abcdef"))) == {Outcome.FILTERED: 6}
        transport.lost_requests = 10**9
        with pytest.raises(TargetUnavailable, match="blob copy/"):
            await one.run((30, "g"))
        assert output.ids("orders") == ["a", "b", "c", "d", "e", "f"]
        await close(one.blobs, two.blobs, three.blobs)

    asyncio.run(run())


def passed(result: EditedTogether) -> Message:
    assert isinstance(result, Sequence)
    assert isinstance(result[0], Message)
    return result[0]


def said(claim: Message) -> Any:
    return json.loads(claim.body or b"")


def test_bodies_go_to_the_storage_and_come_back(storage: str) -> None:
    async def run() -> None:
        container = ContainerClient.from_connection_string(storage, "busway-claims")
        blobs = open_container("CLAIMS", {"CLAIMS": storage}, "busway-claims")
        check = ClaimCheck(blobs, 200_000)
        asked = {"claim-restore": {"setting": "CLAIMS", "delete": True}}
        restore = ClaimRestore(blobs, ClaimRestoreStep.model_validate(asked).options)
        bodies = [bytes([number]) * 300_000 for number in range(12)]
        large = [message(number, body=body) for number, body in enumerate(bodies, 1)]
        claims = [passed(each) for each in await check.edit_batch(large, timeout_seconds=20)]
        again = [passed(each) for each in await check.edit_batch(large, timeout_seconds=20)]
        assert [claim.encode() for claim in claims] == [each.encode() for each in again]
        assert all(claim.size < 1000 for claim in claims)
        assert said(claims[0])["container"] == container.url
        kept = await container.get_blob_client(said(claims[0])["blob"]).get_blob_properties()
        assert bytes(kept.content_settings.content_md5 or b"") == hashlib.md5(bodies[0], usedforsecurity=False).digest()
        await container.get_blob_client(said(claims[1])["blob"]).upload_blob(b"altered", overwrite=True)
        results = await restore.edit_batch(claims, timeout_seconds=20)
        assert str(results[1]).startswith("ClaimAltered")
        assert [passed(each).body for each in (*results[:1], *results[2:])] == bodies[:1] + bodies[2:]
        outcomes = [(claim.arrival, Outcome.SENT) for claim in claims]
        outcomes[1] = claims[1].arrival, Outcome.REJECTED
        await restore.settled(outcomes, timeout_seconds=20)
        await restore.settled(outcomes, timeout_seconds=20)
        assert [name async for name in container.list_blob_names()] == [said(claims[1])["blob"]]
        (missing,) = await restore.edit_batch(claims[:1], timeout_seconds=20)
        assert str(missing).startswith("ClaimMissing")
        await close(container, blobs)

    asyncio.run(run())


def test_a_wrong_key_is_refused(storage: str) -> None:
    wrong = storage.replace("AccountKey=Eby8", "AccountKey=Abcd")

    async def run() -> None:
        blobs = open_container("STORE", {"STORE": wrong}, "refused")
        works = (
            blobs.write("a", b"secret body"),
            blobs.read("a", limit=1),
            blobs.append("a", b"secret body"),
            blobs.tail("a", 0),
            blobs.names("a"),
            blobs.delete("a"),
        )
        for work in works:
            with pytest.raises(
                TargetRefused, match=r"blob a: the storage account answers 403 \(Auth.*Data Contributor"
            ) as raised:
                await work
            assert "secret" not in str(raised.value)
            assert "Abcd" not in str(raised.value)
        await blobs.close()

    asyncio.run(run())


def test_a_storage_account_that_cannot_be_reached_is_unavailable(storage: str) -> None:
    async def run() -> None:
        transport = Transport()
        transport.lost_requests = 10**9
        blobs = over(transport, storage, "away")
        for work in (blobs.write("a", b""), blobs.read("a", limit=1), blobs.append("a", b"x"), blobs.tail("a", 0)):
            with pytest.raises(TargetUnavailable, match=r"blob a: .* cannot be reached, ServiceRequestError"):
                await work
        await blobs.close()

    asyncio.run(run())
