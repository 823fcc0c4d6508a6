"""Rules from Microsoft's documentation and from the issue threads of its users."""

import uuid

import pytest

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules import RuleSyntaxError, parse_action, parse_filter
from tests.unit.rules.properties_in_memory import PropertiesInMemory

STORES = "('Store1','Store2','Store3','Store4','Store5','Store6','Store7','Store8')"
ORDER = PropertiesInMemory(
    system={
        "Subject": values.string("red bus"),
        "MessageId": values.string("xxxx"),
        "CorrelationId": values.string("abc-17"),
        "To": values.string("Store5"),
        "ReplyTo": values.string("johndoe@contoso.com"),
        "ContentType": values.string("application/json"),
        "SessionId": values.string("s-1"),
        "SequenceNumber": values.long(12),
        "DeliveryCount": values.uint(0),
    },
    color=values.string("blue"),
    quantity=values.int_(10),
    Priority=values.string("high"),
    StoreId=values.string("Store1"),
    SuperHero=values.string("SuperManUnited"),
    MessageProperty=values.int_(3),
    price=values.double(12.5),
    IsUrgent=values.boolean(True),
    NServiceBus_EnclosedMessageTypes=values.string("Sales.OrderPlaced, Sales.Messages;Sales.IOrder, Sales.Messages"),
    CustomerId=values.uuid(uuid.UUID(int=7)),
    **{
        "http://schemas.microsoft.com/xrm/2011/Claims/EntityLogicalName": values.string("account"),
        "HR-EmployeeID": values.long(4711),
        "Property With Space": values.string("x"),
        "Contoso & Northwind": values.boolean(False),
        "NServiceBus.EnclosedMessageTypes": values.string("Sales.OrderPlaced, Sales"),
        "repl-path": values.string("west;east"),
    },
)


@pytest.mark.parametrize(
    ("text", "is_selected"),
    [
        ("1=1", True),
        ("1=0", False),
        ("sys.Label LIKE '%bus%'", True),
        ("sys.Label LIKE '%bus%' OR user.tag IN ('queue', 'topic', 'subscription')", True),
        ("sys.label LIKE '%bus%'", True),
        ("sys.messageid = 'xxxx'", True),
        ("sys.correlationid like 'abc-%'", True),
        ("StoreId IN('Store1', 'Store2', 'Store3')", True),
        ("sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'", True),
        (f"sys.To NOT IN {STORES} OR StoreId NOT IN {STORES}", False),
        ("MessageProperty = 'A'", False),
        ("user.SuperHero like 'SuperMan%'", True),
        ("\"http://schemas.microsoft.com/xrm/2011/Claims/EntityLogicalName\" = 'account'", True),
        ("[http://schemas.microsoft.com/xrm/2011/Claims/EntityLogicalName] = 'account'", True),
        ("MessageProperty = 1", False),
        ("MessageProperty > 1", True),
        ("MessageProperty > 2.08", True),
        ("MessageProperty = 1 AND MessageProperty2 = 3", False),
        ("MessageProperty = 3 OR MessageProperty2 = 3", True),
        ("color='blue' AND quantity=10", True),
        ("color = 'BLUE'", False),
        ("COLOR = 'blue'", True),
        ("user.color='red'", False),
        ("[HR-EmployeeID] > 4000", True),
        ("[Property With Space] IS NOT NULL", True),
        ('"Contoso & Northwind" = FALSE', True),
        ("priority = 'high' AND NOT (color = 'red')", True),
        ("quantity * price > 100", True),
        ("quantity % 2 = 0", True),
        ("(quantity - 1) / 3 = 3", True),
        ("IsUrgent = true", True),
        ("IsUrgent = 'true'", False),
        ("IsUrgent", None),
        ("EXISTS(color) AND NOT EXISTS(user.size)", True),
        ("[NServiceBus.EnclosedMessageTypes] LIKE '%Sales.OrderPlaced%'", True),
        ("NServiceBus.EnclosedMessageTypes LIKE '%Sales.OrderPlaced%'", None),
        ("NServiceBus_EnclosedMessageTypes LIKE '%Sales.IOrder%'", True),
        ("replication IS NULL", True),
        ("replicated <> 1", False),
        ("replication IS NULL OR replication <> 1", True),
        ("[repl-path] IS NULL OR [repl-path] NOT LIKE '%east%'", False),
        ("repl-path IS NULL", None),
        ("sys.ReplyTo = 'johndoe@contoso.com' AND sys.Label = 'red bus' AND color = 'blue'", True),
        ("sys.ContentType = 'application/json' AND sys.SessionId <> 's-2'", True),
        ("sys.SequenceNumber > 10 AND sys.DeliveryCount < 1", True),
        ("sys.ReplyToSessionId IS NULL", True),
        ("p('color') = 'blue' AND property('quan' + 'tity') >= 10", True),
        ("CustomerId = '00000000-0000-0000-0000-000000000007'", False),
        ("quantity BETWEEN 1 AND 10", None),
        ("color == 'blue'", None),
        ('color = "blue"', False),
        ("color = 'it''s'", False),
        ("color = 'blue' /* comment */", None),
        ("newid() IS NULL", None),
    ],
)
def test_documented_filters_select_the_expected_messages(text: str, is_selected: bool | None) -> None:
    """The result None marks syntax that the service refuses too, when the rule is created."""
    if is_selected is None:
        with pytest.raises(RuleSyntaxError):
            parse_filter(text)
        return
    rule = parse_filter(text)
    assert rule.matches(ORDER) is is_selected
    assert parse_filter(str(rule)) == rule


@pytest.mark.parametrize(
    ("text", "user", "system"),
    [
        ("SET quantity = quantity / 2;", {"quantity": values.int_(5)}, {}),
        (
            "SET quantity = quantity / 2; REMOVE priority;SET sys.CorrelationId = 'low';",
            {"quantity": values.int_(5), "Priority": None},
            {"CorrelationId": values.string("low")},
        ),
        ("SET source='routedOrders'", {"source": values.string("routedOrders")}, {}),
        ("set replication = 1", {"replication": values.long(1)}, {}),
        ("SET sys.TimeToLive = '0:2:0'", {}, {"TimeToLive": values.uint(120_000)}),
        ("SET sys.Label = sys.To + '/' + color", {}, {"Subject": values.string("Store5/blue")}),
        (
            "SET sys.SessionId = StoreId SET sys.To = 'x'",
            {},
            {"SessionId": values.string("Store1"), "To": values.string("x")},
        ),
    ],
)
def test_documented_actions_have_the_expected_results(
    text: str, user: dict[str, Value | None], system: dict[str, Value | None]
) -> None:
    properties = PropertiesInMemory(system=ORDER.system_values, **ORDER.user_values)
    action = parse_action(text)
    action.apply(properties)
    expected = ORDER.user_values | user
    assert properties.user_values == {name: value for name, value in expected.items() if value is not None}
    assert properties.system_values == ORDER.system_values | system
    assert parse_action(str(action)) == action
