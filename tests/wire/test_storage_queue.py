"""The output for storage queues and the host's trigger: on Azurite, and on a service that answers as a test says."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from aiohttp import web
from azure.storage.queue import QueueMessage, QueueServiceClient

from shared.clock import SystemClock
from shared.ends.storage_queue.clients import SETTING_FORM, queue_service
from shared.ends.storage_queue.output import StorageQueueOutput
from shared.ends.storage_queue.site import StorageQueueSite
from shared.errors import BuswayError, ConfigError, MessageRejected, TargetRefused, TargetUnavailable
from shared.message.waiting import DEAD_LETTERS, Waiting
from shared.protocols import Outgoing
from tests.azurite import ACCOUNT
from tests.wire.sending import answers_of, closing
from tests.wire.storage_texts import NO_QUEUE, SECONDS, account, service, with_another_key

__all__ = ["account", "service"]


def texts(*contents: str, **times: int) -> list[Outgoing]:
    return [Outgoing(content.encode(), None, None, None, None, **times) for content in contents]


def output_to(account: str) -> StorageQueueOutput:
    return StorageQueueOutput("store", lambda: queue_service("STORE", {"STORE": account}))


def sent(
    account: str, messages: Sequence[Outgoing], queue: str = "orders", seconds: float = SECONDS
) -> list[BuswayError | None]:
    [answers] = answers_of(lambda: output_to(account), queue, messages, seconds=seconds)
    return answers


# The output, on Azurite


def test_texts_arrive_unchanged_and_never_expire(account: str, service: QueueServiceClient) -> None:
    contents = ["<&>'\"]]>", "ä€𐍈\t\n x ", "x" * 65536, *map(str, range(100))]
    assert sent(account, texts(*contents)) == [None] * len(contents)
    found = list(service.get_queue_client("orders").receive_messages(messages_per_page=32))
    assert sorted(each.content for each in found) == sorted(contents)
    assert {each.expires_on.year for each in found if each.expires_on is not None} == {9999}


@pytest.mark.parametrize("days", [1, 8])
def test_a_scheduled_message_lives_from_its_scheduled_time(
    account: str, service: QueueServiceClient, days: int
) -> None:
    due = round(SystemClock().now().timestamp() * 1000) + days * 86_400_000
    assert sent(account, texts("later", time_to_live=60_000, scheduled_time=due)) == [None]
    assert service.get_queue_client("orders").get_queue_properties().approximate_message_count == 1


def test_a_scheduled_message_can_be_received_before_it_expires(account: str, service: QueueServiceClient) -> None:
    due = round(SystemClock().now().timestamp() * 1000) + 2_000
    assert sent(account, texts("later", time_to_live=60_000, scheduled_time=due)) == [None]
    found = list[QueueMessage]()
    until = time.monotonic() + SECONDS
    while not found and time.monotonic() < until:
        found = list(service.get_queue_client("orders").receive_messages())
    (later,) = found
    assert later.expires_on is not None
    assert later.inserted_on is not None
    assert timedelta(seconds=61) <= later.expires_on - later.inserted_on <= timedelta(seconds=62)


def test_times_are_whole_seconds_rounded_up(account: str, service: QueueServiceClient) -> None:
    due = round(SystemClock().now().timestamp() * 1000) + 3_600_000
    messages = [*texts("now", time_to_live=90_001), *texts("later", time_to_live=7_200_000, scheduled_time=due)]
    assert sent(account, messages) == [None, None]
    (now,) = service.get_queue_client("orders").receive_messages()
    assert now.content == "now"
    assert now.expires_on is not None
    assert now.inserted_on is not None
    assert now.expires_on - now.inserted_on == timedelta(seconds=91)
    assert service.get_queue_client("orders").get_queue_properties().approximate_message_count == 2


@pytest.mark.usefixtures("service")
def test_a_missing_queue_and_a_wrong_key_are_refused(account: str) -> None:
    (missing,) = sent(account, texts("a"), "other")
    assert isinstance(missing, TargetRefused)
    assert "store/other: the target refuses to take messages, it does not exist" in str(missing)
    (denied,) = sent(with_another_key(account), texts("a"))
    assert isinstance(denied, TargetRefused)
    assert "Busway may not send to it" in str(denied)
    assert "AccountKey" not in str(denied)


def test_a_message_that_is_too_large_or_no_text_is_rejected_alone(account: str, service: QueueServiceClient) -> None:
    binary = Outgoing(b"\0\xff", None, None, None)
    large, small, no_text = sent(account, [*texts("x" * 65537, "small"), binary])
    assert isinstance(large, MessageRejected)
    assert isinstance(no_text, MessageRejected)
    assert small is None
    assert [message.content for message in service.get_queue_client("orders").receive_messages()] == ["small"]


def test_what_waits_is_counted_and_the_poison_queue_too(account: str, service: QueueServiceClient) -> None:
    async def look() -> list[Waiting]:
        async with closing(StorageQueueSite("store", queue_service("STORE", {"STORE": account}))) as site:
            found = [await site.waiting("orders"), await site.waiting("orders" + DEAD_LETTERS)]
            with pytest.raises(TargetRefused) as missing:
                await site.waiting("other")
            assert str(missing.value) == f"store/other: cannot count messages: {NO_QUEUE}"
            return found

    service.get_queue_client("orders").send_message("a")
    waiting, poison = asyncio.run(look())
    assert (waiting.messages, waiting.oldest is None, poison.messages) == (1, False, 0)


def test_a_setting_that_cannot_be_used_is_reported_without_its_value() -> None:
    settings = {"BAD": "AccountKey=s3cret", "ADDRESS__queueServiceUri": "https://a.queue.core.windows.net"}
    problem = SETTING_FORM.problem("BAD", settings)
    assert problem is not None
    assert "s3cret" not in str(problem)
    assert SETTING_FORM.problem("ADDRESS", settings) is None
    for address in (
        "http://a.queue.core.windows.net",
        "a.queue.core.windows.net",
        "https://[a",
        "https://a.b?sig=s3cret",
    ):
        with pytest.raises(ConfigError, match=r"ADDRESS__queueServiceUri: .* is not an https address") as refused:
            queue_service("ADDRESS", {"ADDRESS__queueServiceUri": address})
        assert "s3cret" not in str(refused.value)
    with pytest.raises(ConfigError, match="MISSING: the app setting is missing"):
        queue_service("MISSING", settings)


# The output, on a service that answers as a test says


@dataclass
class AnsweringService:
    """Answers each request for a message with the next of its answers; None carries it out and cuts the connection."""

    answers: list[tuple[int, str, dict[str, str]] | None]
    texts: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        answer = self.answers.pop(0) if self.answers else (201, "", {})
        if answer is None or answer[0] == 201:
            self.texts.append(body.split("<MessageText>")[1].split("</MessageText>")[0])
        if answer is None:
            assert request.transport is not None
            request.transport.abort()
            raise web.HTTPServiceUnavailable
        status, code, headers = answer
        if status == 201:
            document = "<QueueMessagesList><QueueMessage><MessageId>1</MessageId></QueueMessage></QueueMessagesList>"
            return web.Response(status=201, text=document, content_type="application/xml")
        return web.Response(status=status, headers={"x-ms-error-code": code, **headers})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[StorageQueueOutput]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        account = f"{ACCOUNT}QueueEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
        try:
            async with closing(output_to(account)) as output:
                yield output
        finally:
            await runner.cleanup()


def answered(*answers: tuple[int, str, dict[str, str]] | None, count: int = 1) -> list[BuswayError | None]:
    async def run() -> list[BuswayError | None]:
        async with AnsweringService(list(answers)).running() as output:
            return await output.send("orders", texts(*map(str, range(count))), timeout_seconds=SECONDS)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (413, "RequestBodyTooLarge", MessageRejected),
        (400, "RequestBodyTooLarge", MessageRejected),
        (400, "InvalidXmlDocument", MessageRejected),
        (400, "OutOfRangeInput", TargetUnavailable),
        (401, "NoAuthenticationInformation", TargetRefused),
        (403, "AuthorizationPermissionMismatch", TargetRefused),
        (403, "AuthenticationFailed", TargetRefused),
        (404, "QueueNotFound", TargetRefused),
        (409, "QueueDisabled", TargetRefused),
        (409, "QueueBeingDeleted", TargetUnavailable),
        (500, "InternalError", TargetUnavailable),
        (503, "ServerBusy", TargetUnavailable),
    ],
)
def test_each_answer_has_a_remedy(status: int, code: str, error: type[BuswayError]) -> None:
    (answer,) = answered((status, code, {}))
    assert isinstance(answer, error)
    assert "store/orders: " in str(answer)
    assert f"{status} {code}" in str(answer)


def test_a_throttled_account_is_asked_again_when_it_says() -> None:
    (answer,) = answered((503, "ServerBusy", {"Retry-After": "33"}))
    assert isinstance(answer, TargetUnavailable)
    assert answer.retry_after == timedelta(seconds=33)
    (answer,) = answered((503, "ServerBusy", {}))
    assert isinstance(answer, TargetUnavailable)
    assert answer.retry_after == timedelta(seconds=10)


def test_after_a_refusal_nothing_more_of_the_call_is_sent() -> None:
    service = AnsweringService([(503, "ServerBusy", {})] * 64)

    async def run() -> list[BuswayError | None]:
        async with service.running() as output:
            return await output.send("orders", texts(*map(str, range(500))), timeout_seconds=SECONDS)

    assert all(isinstance(error, TargetUnavailable) for error in asyncio.run(run()))
    assert service.texts == []


def test_a_message_whose_answer_is_lost_is_sent_again_and_arrives_twice() -> None:
    service = AnsweringService([None])

    async def run() -> list[BuswayError | None]:
        async with service.running() as output:
            first = await output.send("orders", texts("a"), timeout_seconds=SECONDS)
            return first + await output.send("orders", texts("a"), timeout_seconds=SECONDS)

    lost, again = asyncio.run(run())
    assert isinstance(lost, TargetUnavailable)
    assert "a message without an answer is sent again" in str(lost)
    assert again is None
    assert service.texts == ["a", "a"]
