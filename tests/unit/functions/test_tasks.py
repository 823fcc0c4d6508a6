import asyncio
import json

import azure.functions as func
import pytest
from azure.functions.servicebus import ServiceBusMessage

from functions.raw_message import RawMessage
from functions.tasks import RAW, STOCK, register
from shared.config.models import TaskFile
from shared.errors import ConfigError, TargetUnavailable
from shared.loop_prevention import LoopGuard
from shared.message import Origin
from shared.pipeline import Pipeline, Task
from shared.routing import Route, Router, Target
from shared.ttl import Keep
from tests.fakes import JournalInMemory, OutputThatAccepts, OutputThatIsDown, clock_at_delivery, sleep_by
from tests.messages import delivered

TARGET = {"connection": "east", "queue": "q"}

TRIGGERS = [
    (
        {"queue": "orders"},
        {"type": "serviceBusTrigger", "queueName": "orders"},
    ),
    (
        {"queue": "orders", "sessions": True},
        {"type": "serviceBusTrigger", "queueName": "orders", "isSessionsEnabled": True},
    ),
    (
        {"queue": "orders", "dead_letter": True},
        {"type": "serviceBusTrigger", "queueName": "orders/$DeadLetterQueue"},
    ),
    (
        {"topic": "events", "subscription": "replication"},
        {"type": "serviceBusTrigger", "topicName": "events", "subscriptionName": "replication"},
    ),
    (
        {"topic": "events", "subscription": "replication", "sessions": True},
        {
            "type": "serviceBusTrigger",
            "topicName": "events",
            "subscriptionName": "replication",
            "isSessionsEnabled": True,
        },
    ),
    (
        {"topic": "events", "subscription": "replication", "dead_letter": True},
        {
            "type": "serviceBusTrigger",
            "topicName": "events",
            "subscriptionName": "replication/$DeadLetterQueue",
        },
    ),
    (
        {"hub": "telemetry"},
        {"type": "eventHubTrigger", "eventHubName": "telemetry", "consumerGroup": "$Default"},
    ),
    (
        {"hub": "telemetry", "consumer_group": "busway"},
        {"type": "eventHubTrigger", "eventHubName": "telemetry", "consumerGroup": "busway"},
    ),
]


def task_file(source) -> TaskFile:
    return TaskFile.model_validate(
        {
            "task": "copy",
            "source": {"connection": "west", **source},
            "routes": [{"target": TARGET}],
            "rejects": {"connection": "west", "queue": "rejected"},
        }
    )


def pipeline(output=None) -> Pipeline:
    output = output or OutputThatAccepts()
    task = Task(
        "copy",
        Origin("west", "orders"),
        [],
        Router([Route(Target(output, "east", "q"))]),
        None,
        Keep(),
        LoopGuard(),
    )
    clock = clock_at_delivery()
    return Pipeline(task, JournalInMemory(), clock, sleep_by(clock))


def registered(source, trigger, *, line=None):
    app = func.FunctionApp()
    register(app, task_file(source), line or pipeline(), "WEST", trigger)
    (function,) = app.get_functions()
    return function


@pytest.mark.parametrize(("source", "binding"), TRIGGERS)
@pytest.mark.parametrize(("trigger", "cardinality"), [(RAW, "MANY"), (STOCK, "ONE")])
def test_the_function_of_each_kind_of_source(source, binding, trigger, cardinality):
    function = registered(source, trigger)
    assert function.get_function_name() == "copy"
    (described,) = json.loads(function.get_function_json())["bindings"]
    assert described == {
        "direction": "IN",
        "dataType": "BINARY",
        "name": "messages",
        "connection": "WEST",
        "cardinality": cardinality,
        **binding,
    }


@pytest.mark.parametrize("trigger", [RAW, STOCK])
def test_only_hubs_have_a_retry_policy_and_it_never_gives_up(trigger):
    assert registered({"queue": "q"}, trigger).get_settings_dict("retry_policy") is None
    policy = registered({"hub": "telemetry"}, trigger).get_settings_dict("retry_policy")
    assert policy["strategy"] == "exponential_backoff"
    assert int(policy["max_retry_count"]) == -1


def test_a_trigger_that_is_not_known_is_told():
    with pytest.raises(ConfigError, match="BUSWAY_TRIGGER"):
        registered({"queue": "q"}, "Raw")


def test_the_raw_function_carries_a_batch_with_its_partition():
    output = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, RAW, line=pipeline(output)).get_user_function()
    asyncio.run(function([RawMessage(delivered(number, message_id=None), "3") for number in (1, 2)]))
    first, second = output.ids("q")
    assert first != second
    other = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, RAW, line=pipeline(other)).get_user_function()
    asyncio.run(function([RawMessage(delivered(1, message_id=None), "4")]))
    assert other.ids("q") != [first]


def test_the_stock_function_of_service_bus_carries_a_message():
    output = OutputThatAccepts()
    function = registered({"queue": "q"}, STOCK, line=pipeline(output)).get_user_function()
    given = ServiceBusMessage(body=b"hello", message_id="m", application_properties={}, user_properties={})
    asyncio.run(function(given))
    (message,) = output.messages("q")
    assert message.body == b"hello"


def test_the_stock_function_of_a_hub_carries_an_event():
    output = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, STOCK, line=pipeline(output)).get_user_function()
    asyncio.run(function(func.EventHubEvent(body=b"hello", sequence_number=1)))
    (message,) = output.messages("q")
    assert message.body == b"hello"


def test_what_the_pipeline_raises_fails_the_invocation():
    function = registered({"queue": "q"}, RAW, line=pipeline(OutputThatIsDown())).get_user_function()
    with pytest.raises(TargetUnavailable):
        asyncio.run(function([RawMessage(delivered(1))]))
