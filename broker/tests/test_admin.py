"""The unmodified administration clients of azure-servicebus (sync and async) and @azure/service-bus, over https."""

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    EntityStatus,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from broker.tests.javascript_client import run_script
from broker.tests.sdk_calls import Bus
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

CONFIG = NamespaceConfig(
    name="west",
    counts_lag=dt.timedelta(),
    queues=(QueueConfig(name="configured"),),
    topics=(TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="all"),)),),
)
NAMESPACES = [CONFIG]


@pytest.fixture(scope="module")
def running_admin(running_broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAdmin]:
    with RunningAdmin(running_broker, tmp_path_factory.mktemp("tls")) as admin:
        yield admin


@pytest.fixture
def bus(broker: RunningBroker) -> Iterator[Bus]:
    with ServiceBusClient.from_connection_string(broker.connection_string("west"), retry_total=0) as client:
        yield Bus(broker, client)


@pytest.fixture
def client(admin: RunningAdmin) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        admin.connection_string("west"), connection_verify=str(admin.authority), retry_total=0
    ) as client:
        yield client


def test_a_queue_is_created_read_updated_and_deleted(client: ServiceBusAdministrationClient) -> None:
    created = client.create_queue(
        "orders/new",
        lock_duration=dt.timedelta(seconds=45),
        max_delivery_count=4,
        default_message_time_to_live=dt.timedelta(days=1, hours=2),
        dead_lettering_on_message_expiration=True,
        requires_session=True,
        forward_dead_lettered_messages_to="configured",
        user_metadata="<b> & 'c'",
        max_size_in_megabytes=2048,
    )
    assert created.name == "orders/new"
    queue = client.get_queue("orders/new")
    assert queue.lock_duration == dt.timedelta(seconds=45)
    assert queue.default_message_time_to_live == dt.timedelta(days=1, hours=2)
    assert (queue.max_delivery_count, queue.max_size_in_megabytes) == (4, 2048)
    assert queue.dead_lettering_on_message_expiration
    assert queue.requires_session
    assert str(queue.forward_dead_lettered_messages_to).endswith("/configured")
    assert (queue.user_metadata, queue.status) == ("<b> & 'c'", EntityStatus.ACTIVE)

    queue.max_delivery_count = 7
    queue.forward_dead_lettered_messages_to = None
    client.update_queue(queue)
    queue = client.get_queue("orders/new")
    assert (queue.max_delivery_count, queue.forward_dead_lettered_messages_to) == (7, None)
    assert queue.lock_duration == dt.timedelta(seconds=45)

    client.delete_queue("orders/new")
    with pytest.raises(ResourceNotFoundError):
        client.get_queue("orders/new")


def test_an_infinite_duration_comes_back_as_it_was_sent(client: ServiceBusAdministrationClient) -> None:
    queue = client.create_queue("endless")
    client.update_queue(queue)
    assert client.get_queue("endless").default_message_time_to_live == queue.default_message_time_to_live
    never = client.get_queue("endless").auto_delete_on_idle
    assert isinstance(never, dt.timedelta)
    assert never.days > 10_000_000


def test_authorization_rules_are_kept(client: ServiceBusAdministrationClient) -> None:
    rule = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        rights=[AccessRights.SEND, AccessRights.LISTEN],
        key_name="name",
        primary_key="first",
        secondary_key="second",
    )
    client.create_queue("guarded", authorization_rules=[rule])
    [read] = client.get_queue("guarded").authorization_rules or []
    assert (read.key_name, read.primary_key, read.secondary_key) == ("name", "first", "second")
    assert set(read.rights or ()) == {AccessRights.SEND, AccessRights.LISTEN}


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda client: client.get_queue("missing"), ResourceNotFoundError),
        (lambda client: client.delete_queue("missing"), ResourceNotFoundError),
        (lambda client: client.get_topic("missing"), ResourceNotFoundError),
        (lambda client: client.get_subscription("events", "missing"), ResourceNotFoundError),
        (lambda client: client.create_subscription("missing", "any"), ResourceNotFoundError),
        (lambda client: client.get_rule("events", "all", "missing"), ResourceNotFoundError),
        (lambda client: client.create_queue("CONFIGURED"), ResourceExistsError),
        (lambda client: client.create_queue("events"), ResourceExistsError),
        (lambda client: client.create_topic("events"), ResourceExistsError),
        (lambda client: client.create_subscription("events", "all"), ResourceExistsError),
        (lambda client: client.create_rule("events", "all", "$default"), ResourceExistsError),
        (lambda client: client.create_queue("no name"), HttpResponseError),
        (lambda client: client.create_queue("q", lock_duration=dt.timedelta(minutes=6)), HttpResponseError),
        (lambda client: client.create_queue("q", forward_to="missing"), HttpResponseError),
        (lambda client: client.create_rule("events", "all", "r", filter=SqlRuleFilter("a >")), HttpResponseError),
    ],
)
def test_a_refused_request_raises_the_same_error_as_with_the_service(
    client: ServiceBusAdministrationClient,
    work: Callable[[ServiceBusAdministrationClient], object],
    error: type[HttpResponseError],
) -> None:
    with pytest.raises(error) as caught:
        work(client)
    assert type(caught.value) is error
    assert caught.value.status_code == {ResourceNotFoundError: 404, ResourceExistsError: 409}.get(error, 400)
    if error is HttpResponseError:
        assert caught.value.message.startswith("SubCode=40000. ")


def test_requiring_sessions_cannot_be_changed(client: ServiceBusAdministrationClient) -> None:
    queue = client.get_queue("configured")
    queue.requires_session = True
    with pytest.raises(HttpResponseError, match="cannot be changed"):
        client.update_queue(queue)


def test_all_rules_are_listed_although_a_page_has_25(client: ServiceBusAdministrationClient) -> None:
    """Azure/azure-service-bus issue 330."""
    for number in range(60):
        client.create_rule("events", "all", f"rule-{number:02}")
    pages = [[rule.name for rule in page] for page in client.list_rules("events", "all").by_page()]
    assert [len(page) for page in pages] == [25, 25, 11]


def test_lists_are_paged(client: ServiceBusAdministrationClient) -> None:
    for number in range(5):
        client.create_queue(f"page-{number}")
    pages = [[queue.name for queue in page] for page in client.list_queues(max_page_size=2).by_page()]
    assert pages == [["configured", "page-0"], ["page-1", "page-2"], ["page-3", "page-4"]]
    assert [topic.name for topic in client.list_topics()] == ["events"]
    assert [subscription.name for subscription in client.list_subscriptions("events")] == ["all"]
    client.delete_topic("events")
    assert list(client.list_topics()) == []


def test_runtime_properties_count_messages(client: ServiceBusAdministrationClient, bus: Bus) -> None:
    bus.send("configured", [ServiceBusMessage("12345"), ServiceBusMessage("6")])
    bus.send("events", [ServiceBusMessage("event")])
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    bus.send("configured", [ServiceBusMessage("later", scheduled_enqueue_time_utc=later)])
    queue = client.get_queue_runtime_properties("configured")
    assert (queue.active_message_count, queue.scheduled_message_count, queue.total_message_count) == (2, 1, 3)
    assert queue.size_in_bytes == bus.broker.inspect("west", lambda west: west.queue("configured").size) > 0
    assert queue.created_at_utc is not None
    assert abs(queue.created_at_utc - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)
    (subscription,) = client.list_subscriptions_runtime_properties("events")
    assert (subscription.active_message_count, subscription.dead_letter_message_count) == (1, 0)
    topic = client.get_topic_runtime_properties("events")
    assert (topic.subscription_count, topic.scheduled_message_count) == (1, 0)


def test_rules_are_returned_as_they_were_written(client: ServiceBusAdministrationClient) -> None:
    parameters: dict[str, Any] = {
        "@int": 3,
        "@long": 2**40,
        "@double": 1.5,
        "@text": "t",
        "@flag": True,
        "@time": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "@span": dt.timedelta(minutes=1, seconds=30),
    }
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1)
    sql = client.create_rule(
        "events",
        "all",
        "sql",
        filter=SqlRuleFilter("a  >  @int  AND b < 'x'", parameters=parameters),
        action=SqlRuleAction("SET  c = @int", parameters={"@int": 1}),
    )
    assert sql.created_at_utc is not None
    assert before < sql.created_at_utc < dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)
    read = client.get_rule("events", "all", "sql")
    assert isinstance(read.filter, SqlRuleFilter)
    assert read.action is not None
    assert (read.filter.sql_expression, read.action.sql_expression) == ("a  >  @int  AND b < 'x'", "SET  c = @int")
    assert dict(read.filter.parameters or {}) == parameters
    assert dict(read.action.parameters or {}) == {"@int": 1}

    correlation = CorrelationRuleFilter(label="order", content_type="json", properties={"number": 1, "text": "t"})
    client.create_rule("events", "all", "correlation", filter=correlation)
    read = client.get_rule("events", "all", "correlation")
    assert isinstance(read.filter, CorrelationRuleFilter)
    assert (read.filter.label, read.filter.content_type, read.filter.correlation_id) == ("order", "json", None)
    assert dict(read.filter.properties or {}) == {"number": 1, "text": "t"}

    client.create_rule("events", "all", "nothing", filter=FalseRuleFilter())
    kinds = {rule.name: type(rule.filter) for rule in client.list_rules("events", "all")}
    assert kinds == {
        "$Default": TrueRuleFilter,
        "sql": SqlRuleFilter,
        "correlation": CorrelationRuleFilter,
        "nothing": FalseRuleFilter,
    }
    read.filter = SqlRuleFilter("1 = 0")
    client.update_rule("events", "all", read)
    replaced = client.get_rule("events", "all", "correlation").filter
    assert isinstance(replaced, SqlRuleFilter)
    assert replaced.sql_expression == "1 = 0"
    client.delete_rule("events", "all", "correlation")
    with pytest.raises(ResourceNotFoundError):
        client.get_rule("events", "all", "correlation")


def test_a_new_rule_applies_from_the_next_message_on(client: ServiceBusAdministrationClient, bus: Bus) -> None:
    client.create_subscription("events", "some")
    client.delete_rule("events", "some", "$Default")
    client.create_rule("events", "some", "wanted", filter=SqlRuleFilter("n = @n", parameters={"@n": 2}))
    bus.send("events", [ServiceBusMessage("", application_properties={"n": n}) for n in (1, 2, 3)])
    assert bus.broker.counts("west")["events/Subscriptions/some"].active == 1


def test_a_reset_undoes_administrative_changes(client: ServiceBusAdministrationClient, broker: RunningBroker) -> None:
    client.create_queue("passing")
    client.delete_queue("configured")
    broker.reset()
    assert [queue.name for queue in client.list_queues()] == ["configured"]


def test_the_namespace_has_a_name_and_a_tier(client: ServiceBusAdministrationClient) -> None:
    properties = client.get_namespace_properties()
    assert (properties.name, properties.messaging_sku) == ("west", "Standard")


class PlainTransport(RequestsTransport):  # type: ignore[misc] # azure-core has no type for what it loads late
    """A transport for plain http, which the administration speaks without --tls."""

    def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return super().send(request, **options)


def test_a_python_client_can_use_http(broker: RunningBroker) -> None:
    with (
        RunningAdmin(broker) as admin,
        ServiceBusAdministrationClient.from_connection_string(
            admin.connection_string("west"), transport=PlainTransport()
        ) as client,
    ):
        assert client.get_queue("configured").name == "configured"


def test_the_asynchronous_client_works_too(admin: RunningAdmin) -> None:
    async def administer() -> tuple[dt.timedelta | str | None, int | None, list[str], list[str]]:
        async with AsyncAdministrationClient.from_connection_string(
            admin.connection_string("west"), connection_verify=str(admin.authority), retry_total=0
        ) as client:
            await client.create_topic("async", max_size_in_megabytes=3072)
            await client.create_subscription("async", "sub", lock_duration=dt.timedelta(seconds=20))
            await client.create_rule("async", "sub", "rule", filter=SqlRuleFilter("a = 1"))
            subscription = await client.get_subscription("async", "sub")
            subscription.max_delivery_count = 3
            await client.update_subscription("async", subscription)
            subscription = await client.get_subscription("async", "sub")
            rules = [rule.name async for rule in client.list_rules("async", "sub")]
            with pytest.raises(ResourceNotFoundError):
                await client.get_queue("missing")
            with pytest.raises(ResourceExistsError):
                await client.create_topic("async")
            await client.delete_topic("async")
            topics = [topic.name async for topic in client.list_topics()]
            return subscription.lock_duration, subscription.max_delivery_count, rules, topics

    assert asyncio.run(administer()) == (dt.timedelta(seconds=20), 3, ["$Default", "rule"], ["events"])


def test_the_javascript_client_works(tmp_path: Path) -> None:
    with RunningBroker([NamespaceConfig(name="west")]) as broker, RunningAdmin(broker, tmp_path) as admin:
        run_script("administration", admin.connection_string("west"), authority=admin.authority)
