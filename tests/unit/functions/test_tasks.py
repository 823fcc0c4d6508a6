import asyncio
import json
from typing import Any

import azure.functions as func
import pytest
from azure.functions.decorators.function_app import Function
from azure.functions.meta import Datum
from azure.functions.servicebus import ServiceBusMessage

from functions.raw_message import RawMessage
from functions.settlement import HostSettlement
from functions.stock_binding import STOCK_LOSSES
from functions.tasks import register
from shared.config.models import TaskFile
from shared.errors import TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.ttl import Keep
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
        {"queue": "orders", "dead_letter": "transfer"},
        {"type": "serviceBusTrigger", "queueName": "orders/$Transfer/$DeadLetterQueue"},
    ),
    (
        {"topic": "events", "subscription": "replication", "dead_letter": "transfer"},
        {
            "type": "serviceBusTrigger",
            "topicName": "events",
            "subscriptionName": "replication/$Transfer/$DeadLetterQueue",
        },
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


def task_file(source: dict[str, Any], trigger: str = "raw") -> TaskFile:
    return TaskFile.model_validate(
        {
            "task": "copy",
            "source": {"connection": "west", **source},
            "trigger": trigger,
            "routes": [{"target": TARGET}],
            "rejects": {"connection": "west", "queue": "rejected"},
        }
    )


def pipeline(output: OutputThatIsDown | OutputThatAccepts | None = None) -> Pipeline:
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


def registered(source: dict[str, Any], trigger: str, *, line: Pipeline | None = None) -> Function:
    app = func.FunctionApp()
    register(app, task_file(source, trigger), line or pipeline(), "WEST", sessions=HostSettlement())
    (function,) = app.get_functions()
    return function


@pytest.mark.parametrize(("source", "binding"), TRIGGERS)
@pytest.mark.parametrize("trigger", ["raw", "stock"])
def test_the_function_of_each_kind_of_source(source: dict[str, Any], binding: dict[str, Any], trigger: str) -> None:
    function = registered(source, trigger)
    cardinality = "ONE" if trigger == "stock" and "hub" not in source else "MANY"
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


@pytest.mark.parametrize("trigger", ["raw", "stock"])
def test_only_hubs_have_a_retry_policy_without_limit(trigger: str) -> None:
    assert registered({"queue": "q"}, trigger).get_settings_dict("retry_policy") is None
    policy = registered({"hub": "telemetry"}, trigger).get_settings_dict("retry_policy")
    assert policy is not None
    assert policy["strategy"] == "exponential_backoff"
    assert int(policy["max_retry_count"]) == -1


def test_stock_trigger_is_logged_when_the_app_starts(caplog: pytest.LogCaptureFixture) -> None:
    registered({"queue": "q"}, "raw")
    registered({"queue": "q"}, "stock")
    messages = [each.getMessage() for each in caplog.records if each.name == "busway.tasks"]
    assert messages == [f"copy: uses the stock trigger, which changes messages: {STOCK_LOSSES}"]


def test_a_task_with_lanes_has_functions_that_share_its_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    app = func.FunctionApp()
    file = task_file({"queue": "q", "sessions": True}).model_copy(update={"lanes": 3, "trigger": "stock"})
    output = OutputThatAccepts()
    register(app, file, pipeline(output), "WEST", sessions=HostSettlement())
    functions = app.get_functions()
    assert [each.get_function_name() for each in functions] == ["copy", "copy-lane-2", "copy-lane-3"]
    bindings = [json.loads(each.get_function_json())["bindings"] for each in functions]
    assert bindings[0] == bindings[1] == bindings[2]
    for number, each in enumerate(functions):
        given = ServiceBusMessage(body=b"", message_id=f"{number}", application_properties={}, user_properties={})
        asyncio.run(each.get_user_function()(given))
    assert output.ids("q") == ["0", "1", "2"]
    assert len([each for each in caplog.records if each.name == "busway.tasks"]) == 1


@pytest.mark.parametrize("trigger", ["raw", "stock"])
def test_single_dispatch_takes_one_message_at_a_time_and_sends_them_together(trigger: str) -> None:
    app = func.FunctionApp()
    output = OutputThatAccepts()
    file = task_file({"queue": "q", "sessions": True}, trigger).model_copy(update={"dispatch": "single"})
    register(app, file, pipeline(output), "WEST", sessions=HostSettlement())
    (function,) = app.get_functions()
    assert function.get_function_name() == "copy"
    assert json.loads(function.get_function_json())["bindings"][0]["cardinality"] == "ONE"
    call = function.get_user_function()

    def given(number: int) -> RawMessage | ServiceBusMessage:
        if trigger == "raw":
            return RawMessage(delivered(number, session_id=f"{number}"), lock_token=bytes(16))
        return ServiceBusMessage(
            body=b"", message_id=f"m-{number}", session_id=f"{number}", application_properties={}, user_properties={}
        )

    async def host() -> None:
        await asyncio.gather(*(call(given(number)) for number in (1, 2, 3)))

    asyncio.run(host())
    assert output.ids("q") == ["m-1", "m-2", "m-3"]
    assert output.calls == [3]
    failing = func.FunctionApp()
    register(failing, file, pipeline(OutputThatIsDown()), "WEST", sessions=HostSettlement())
    with pytest.raises(TargetUnavailable):
        asyncio.run(failing.get_functions()[0].get_user_function()(given(4)))


def test_the_raw_function_carries_a_batch_with_its_partition() -> None:
    output = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, "raw", line=pipeline(output)).get_user_function()
    asyncio.run(function([RawMessage(delivered(number, message_id=None), "3") for number in (1, 2)]))
    first, second = output.ids("q")
    assert first != second
    other = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, "raw", line=pipeline(other)).get_user_function()
    asyncio.run(function([RawMessage(delivered(1, message_id=None), "4")]))
    assert other.ids("q") != [first]


def test_the_stock_function_of_service_bus_carries_a_message() -> None:
    output = OutputThatAccepts()
    function = registered({"queue": "q"}, "stock", line=pipeline(output)).get_user_function()
    given = ServiceBusMessage(body=b"hello", message_id="m", application_properties={}, user_properties={})
    asyncio.run(function(given))
    (message,) = output.messages("q")
    assert message.body == b"hello"


def test_the_stock_function_of_a_hub_carries_a_batch() -> None:
    output = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, "stock", line=pipeline(output)).get_user_function()
    metadata = {
        "SystemPropertiesArray": Datum('[{"message-id": "a"}, {"message-id": "b"}]', "json"),
        "PropertiesArray": Datum('[{}, {"n": 1}]', "json"),
    }
    events = [
        func.EventHubEvent(body=b"%d" % number, sequence_number=number, trigger_metadata=metadata) for number in (1, 2)
    ]
    asyncio.run(function(events))
    assert [each.body for each in output.messages("q")] == [b"1", b"2"]
    assert output.ids("q") == ["a", "b"]


def test_pipeline_error_fails_the_invocation() -> None:
    function = registered({"queue": "q"}, "raw", line=pipeline(OutputThatIsDown())).get_user_function()
    with pytest.raises(TargetUnavailable):
        asyncio.run(function([RawMessage(delivered(1))]))
