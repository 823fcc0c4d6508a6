import uuid

import pytest

from shared.amqp import values
from shared.rules import CorrelationFilter
from tests.unit.rules.properties_in_memory import PropertiesInMemory

SYSTEM = [
    (CorrelationFilter(content_type="High"), "ContentType"),
    (CorrelationFilter(correlation_id="High"), "CorrelationId"),
    (CorrelationFilter(message_id="High"), "MessageId"),
    (CorrelationFilter(reply_to="High"), "ReplyTo"),
    (CorrelationFilter(reply_to_session_id="High"), "ReplyToSessionId"),
    (CorrelationFilter(session_id="High"), "SessionId"),
    (CorrelationFilter(subject="High"), "Subject"),
    (CorrelationFilter(to="High"), "To"),
]


@pytest.mark.parametrize(("correlation", "name"), SYSTEM)
def test_each_system_property_is_compared_with_case(correlation: CorrelationFilter, name: str) -> None:
    assert correlation.matches(PropertiesInMemory(system={name: values.string("High")}))
    assert not correlation.matches(PropertiesInMemory(system={name: values.string("high")}))
    assert not correlation.matches(PropertiesInMemory(High=values.string("High")))


def test_all_conditions_must_hold() -> None:
    correlation = CorrelationFilter(subject="Important", properties={"Color": values.string("Red")})
    label = {"Subject": values.string("Important")}
    assert correlation.matches(PropertiesInMemory(system=label, color=values.string("Red")))
    assert not correlation.matches(PropertiesInMemory(system=label))
    assert not correlation.matches(PropertiesInMemory(color=values.string("Red")))


def test_values_of_different_types_are_not_equal() -> None:
    number, text = (CorrelationFilter(properties={"version": value}) for value in (values.long(2), values.string("2")))
    assert number.matches(PropertiesInMemory(version=values.int_(2)))
    assert not number.matches(PropertiesInMemory(version=values.string("2")))
    assert not text.matches(PropertiesInMemory(version=values.long(2)))


def test_a_message_id_that_is_not_a_string_never_equals_a_string() -> None:
    message_id = uuid.UUID(int=1)
    properties = PropertiesInMemory(system={"MessageId": values.uuid(message_id)})
    assert not CorrelationFilter(message_id=str(message_id)).matches(properties)
