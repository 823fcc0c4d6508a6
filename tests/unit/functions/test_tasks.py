import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import azure.functions as func
import pytest
from azure.functions.decorators.function_app import Function

from functions.composition import compose
from functions.raw_message import RawMessage
from functions.settlement import HostSettlement
from functions.tasks import register
from shared.errors import TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.ttl import Keep
from shared.tasks.models import TaskFile
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


def task_file(source: dict[str, Any]) -> TaskFile:
    return TaskFile.model_validate(
        {
            "task": "copy",
            "source": {"connection": "west", **source},
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


def registered(source: dict[str, Any], *, line: Pipeline | None = None) -> Function:
    app = func.FunctionApp()
    register(app, task_file(source), line or pipeline(), "WEST", sessions=HostSettlement())
    (function,) = app.get_functions()
    return function


@pytest.mark.parametrize(("source", "binding"), TRIGGERS)
def test_the_function_of_each_kind_of_source(source: dict[str, Any], binding: dict[str, Any]) -> None:
    function = registered(source)
    assert function.get_function_name() == "copy"
    (described,) = json.loads(function.get_function_json())["bindings"]
    assert described == {
        "direction": "IN",
        "dataType": "BINARY",
        "name": "messages",
        "connection": "WEST",
        "cardinality": "MANY",
        **binding,
    }


def test_only_hubs_have_a_retry_policy_without_limit() -> None:
    assert registered({"queue": "q"}).get_settings_dict("retry_policy") is None
    policy = registered({"hub": "telemetry"}).get_settings_dict("retry_policy")
    assert policy is not None
    assert policy["strategy"] == "exponential_backoff"
    assert int(policy["max_retry_count"]) == -1


_APP = {
    "connections.yaml": """
west: {kind: service-bus, setting: WEST}
hubs: {kind: event-hubs, setting: HUBS}
""",
    "journal.yaml": "event_hub: {connection: hubs, hub: journal}",
    "tasks/all.yaml": """
task: copy
source: {connection: hubs, hub: readings}
routes: [{target: {connection: hubs, hub: readings-copy}}]
rejects: {connection: west, queue: rejected}
---
task: some
source: {connection: hubs, hub: readings, consumer_group: some, partitions: [0]}
routes: [{target: {connection: west, queue: orders}}]
rejects: {connection: west, queue: rejected}
---
task: watch
source: {connection: hubs, hub: readings, consumer_group: watch}
tap: {of: copy, side: source}
""",
}


def test_every_function_of_a_hub_is_retried_without_limit(tmp_path: Path) -> None:
    """FN27: without a policy the position advances over what has failed (azure-functions-eventhubs-extension 70)."""
    for name, text in _APP.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    key = "SharedAccessKeyName=k;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    settings = dict.fromkeys(("WEST", "HUBS"), f"Endpoint=sb://localhost;{key}")
    with ThreadPoolExecutor(1) as thread:  # in the main thread it would handle signals
        app = thread.submit(compose, tmp_path, settings).result()
    found: dict[str | None, Any] = {}
    for function in app.get_functions():
        kinds = {each["type"] for each in json.loads(function.get_function_json())["bindings"]}
        if "eventHubTrigger" in kinds:
            found[function.get_function_name()] = function.get_settings_dict("retry_policy")
    assert found.keys() == {"copy", "some", "watch"}
    assert {int(policy["max_retry_count"]) for policy in found.values()} == {-1}


def test_a_task_with_lanes_has_functions_that_share_its_pipeline() -> None:
    app = func.FunctionApp()
    file = task_file({"queue": "q", "sessions": True}).model_copy(update={"lanes": 3})
    output = OutputThatAccepts()
    register(app, file, pipeline(output), "WEST", sessions=HostSettlement())
    functions = app.get_functions()
    assert [function.get_function_name() for function in functions] == ["copy", "copy-lane-2", "copy-lane-3"]
    bindings = [json.loads(function.get_function_json())["bindings"] for function in functions]
    assert bindings[0] == bindings[1] == bindings[2]
    for number, function in enumerate(functions):
        asyncio.run(function.get_user_function()([RawMessage(delivered(number))]))
    assert output.ids("q") == ["m-0", "m-1", "m-2"]


def test_single_dispatch_takes_one_message_at_a_time_and_sends_them_together() -> None:
    app = func.FunctionApp()
    output = OutputThatAccepts()
    file = task_file({"queue": "q", "sessions": True}).model_copy(update={"dispatch": "single"})
    register(app, file, pipeline(output), "WEST", sessions=HostSettlement())
    (function,) = app.get_functions()
    assert function.get_function_name() == "copy"
    assert json.loads(function.get_function_json())["bindings"][0]["cardinality"] == "ONE"
    call = function.get_user_function()

    def given(number: int) -> RawMessage:
        return RawMessage(delivered(number, session_id=f"{number}"), lock_token=bytes(16))

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
    function = registered({"hub": "telemetry"}, line=pipeline(output)).get_user_function()
    asyncio.run(function([RawMessage(delivered(number, message_id=None), "3") for number in (1, 2)]))
    first, second = output.ids("q")
    assert first != second
    other = OutputThatAccepts()
    function = registered({"hub": "telemetry"}, line=pipeline(other)).get_user_function()
    asyncio.run(function([RawMessage(delivered(1, message_id=None), "4")]))
    assert other.ids("q") != [first]


def test_pipeline_error_fails_the_invocation() -> None:
    function = registered({"queue": "q"}, line=pipeline(OutputThatIsDown())).get_user_function()
    with pytest.raises(TargetUnavailable):
        asyncio.run(function([RawMessage(delivered(1))]))
