"""`busway import` reads the function.json files of Microsoft's C# sample; what they say is from its README."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from shared.config.files import load

PREFIX = "Azure.Messaging.Replication."
HUB_IN = {"direction": "in", "type": "eventHubTrigger", "eventHubName": "hub-a", "name": "input"}
# The sample names a queue as eventHubName.
QUEUE_OUT = {"direction": "out", "type": "serviceBus", "eventHubName": "queue-a", "name": "output"}
TOPIC_IN = {"direction": "in", "type": "serviceBusTrigger", "topicName": "t", "subscriptionName": "s", "name": "input"}
HUB_OUT = {"direction": "out", "type": "eventHub", "eventHubName": "hub-b", "name": "output"}


def write(folder: Path, name: str, source: dict[str, Any], target: dict[str, Any], **more: object) -> None:
    document = {
        "configurationSource": "config",
        "bindings": [
            {**source, "connection": f"{name}-source-connection"},
            {**target, "connection": f"{name}-target-connection"},
        ],
        "disabled": False,
        "entryPoint": PREFIX + "EventHubReplicationTasks.ForwardToServiceBus",
        **more,
    }
    (folder / name).mkdir(parents=True)
    (folder / name / "function.json").write_text(json.dumps(document))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["import", *map(str, arguments)])


def test_tasks_become_files_that_load_and_changes_are_listed(tmp_path: Path) -> None:
    source, folder = tmp_path / "app", tmp_path / "config"
    write(source, "HubToQueue", HUB_IN | {"consumerGroup": "copy"}, QUEUE_OUT, retry={"maxRetryCount": -1})
    write(source, "TopicToHub", TOPIC_IN, HUB_OUT, entryPoint="My.Tasks.Own")
    result = run(source, folder)
    assert result.exit_code == 0, result.output
    configuration = load(folder)
    first, second = configuration.tasks
    assert (first.task, first.source.hub, first.source.consumer_group) == ("HubToQueue", "hub-a", "copy")
    assert (first.routes[0].target.queue, first.rejects and first.rejects.queue) == ("queue-a", "hub-a-rejected")
    assert (second.source.entity, second.routes[0].target.hub) == ("t/Subscriptions/s", "hub-b")
    assert len(configuration.connections) == 4
    for text in (
        "HUBTOQUEUE_SOURCE_CONNECTION replaces HubToQueue-source-connection",
        "HubToQueue: its retry policy is dropped",
        "TopicToHub: its entry point 'My.Tasks.Own' is code of your own",
        "new: rejects of HubToQueue",
    ):
        assert text in result.stdout
    assert CliRunner().invoke(app, ["check", str(folder)]).exit_code == 0


def test_connections_to_one_namespace_become_one_and_no_secret_is_copied(tmp_path: Path) -> None:
    source, folder, settings = tmp_path / "app", tmp_path / "config", tmp_path / "local.settings.json"
    write(source, "One", HUB_IN, QUEUE_OUT)
    write(source, "Two", HUB_IN | {"eventHubName": "hub-c"}, HUB_OUT)
    secret = "SharedAccessKeyName=r;SharedAccessKey=c2VjcmV0"
    values = {
        "One-source-connection": f"Endpoint=sb://plant.servicebus.windows.net/;{secret};EntityPath=hub-a",
        "Two-source-connection": f"Endpoint=sb://PLANT.servicebus.windows.net/;{secret}",
        "One-target-connection": f"Endpoint=sb://office.servicebus.windows.net/;{secret}",
        "Two-target-connection": f"Endpoint=sb://1st.servicebus.windows.net/;{secret}",
    }
    settings.write_text(json.dumps({"Values": values}))
    result = run(source, folder, "--settings", settings)
    assert result.exit_code == 0, result.output
    assert [*load(folder).connections] == ["plant", "office", "site-1st"]
    written = "".join(each.read_text() for each in folder.rglob("*.yaml")) + result.output
    assert "c2VjcmV0" not in written
    assert "PLANT replaces One-source-connection, Two-source-connection" in written


@pytest.mark.parametrize(
    ("source", "more", "reason"),
    [
        (HUB_IN | {"eventHubName": "%HUB%"}, {}, "takes eventHubName from the app setting %HUB%"),
        (HUB_IN | {"type": "queueTrigger"}, {}, "has a binding of type 'queueTrigger'"),
        ({"direction": "in", "type": "serviceBusTrigger", "name": "input"}, {}, "has a binding without queueName"),
        (HUB_IN, {"disabled": True}, "is disabled"),
        (HUB_IN, {"bindings": 3}, "has 0 input and 0 output bindings"),
    ],
)
def test_a_task_that_cannot_be_imported_is_named_and_the_others_are_written(
    tmp_path: Path, source: dict[str, Any], more: dict[str, Any], reason: str
) -> None:
    write(tmp_path / "app", "Bad", source, QUEUE_OUT, **more)
    write(tmp_path / "app", "Good", TOPIC_IN, QUEUE_OUT)
    result = run(tmp_path / "app", tmp_path / "config")
    assert result.exit_code == 1
    assert f"Bad/function.json: is not imported: it {reason}" in result.stderr
    assert [each.task for each in load(tmp_path / "config").tasks] == ["Good"]


def test_nothing_is_overwritten_and_an_empty_source_is_named(tmp_path: Path) -> None:
    write(tmp_path / "app", "Good", TOPIC_IN, QUEUE_OUT)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/mine.yaml").write_text("x")
    assert "exists and is not an empty folder" in run(tmp_path / "app", tmp_path / "config").stderr
    assert "has no folder with a function.json" in run(tmp_path / "config", tmp_path / "new").stderr
    (tmp_path / "app/Good/function.json").write_text("{")
    assert "is not JSON" in run(tmp_path / "app", tmp_path / "new").stderr
    assert not (tmp_path / "new").exists()
