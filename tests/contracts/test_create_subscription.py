"""The request with which a subscription is created with its rule: the SDK's private seam, and the order on the wire."""

import re
from collections.abc import Iterator

import pytest
from azure.core.rest import HttpRequest
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, TopicConfig
from busway_broker.thread import RunningBroker
from shared.ends.service_bus import administration
from shared.ends.service_bus.administration import administration_client, create_subscription_with_rule

pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")


@pytest.fixture
def client() -> Iterator[ServiceBusAdministrationClient]:
    namespace = NamespaceConfig(name="west", topics=(TopicConfig(name="orders"),))
    with RunningBroker([namespace]) as broker, RunningAdmin(broker) as admin:
        settings = {"WEST": broker.connection_string("west"), "WEST__administration": admin.address("west")}
        with administration_client("WEST", settings) as client:
            yield client


def test_the_rule_is_in_its_place_among_the_elements(
    client: ServiceBusAdministrationClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure ignores an element that is out of order, and would leave `$Default` on the subscription."""
    sent: list[bytes] = []
    transport = administration._PlainTransport
    send = transport.send

    def recorded(self: administration._PlainTransport, request: HttpRequest, **options: object) -> object:
        if request.method == "PUT":
            sent.append(bytes(request.content or b""))
        return send(self, request, **options)

    monkeypatch.setattr(transport, "send", recorded)
    settings = {
        "LockDuration": "PT1M",
        "RequiresSession": "true",
        "MaxDeliveryCount": "58",
        "UserMetadata": "busway: a",
    }
    create_subscription_with_rule(
        client,
        "orders",
        "replication",
        settings,
        rule="mark",
        sql_filter="replication IS NULL AND a < '&'",
        action="SET replication = 1",
    )
    [body] = sent
    elements = re.findall(r"<(\w+)", body.decode().partition("SubscriptionDescription")[2])
    assert elements == [
        *("LockDuration", "RequiresSession"),
        *("DefaultRuleDescription", "Filter", "SqlExpression", "CompatibilityLevel"),
        *("Action", "SqlExpression", "CompatibilityLevel", "Name"),
        *("MaxDeliveryCount", "UserMetadata"),
    ]
    # Service Bus refuses a prefix for its own namespace.
    assert b"<SubscriptionDescription" in body

    [rule] = client.list_rules("orders", "replication")
    assert rule.name == "mark"
    assert isinstance(rule.filter, SqlRuleFilter)
    assert rule.filter.sql_expression == "replication IS NULL AND a < '&'"
    subscription = client.get_subscription("orders", "replication")
    assert (subscription.requires_session, subscription.max_delivery_count) == (True, 58)


def test_an_unknown_element_is_not_dropped(client: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ValueError, match="Colour"):
        create_subscription_with_rule(
            client, "orders", "replication", {"Colour": "red"}, rule="r", sql_filter="1=1", action=None
        )
