"""Files of entities, and host files: which connection each belongs to, and what it must leave room for."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.entities import entities_of
from shared.errors import ConfigError
from shared.review import Entities, HostFile, largest_batch, review
from shared.tasks.files import load
from shared.tasks.models import Connection
from tests.unit.tasks.conftest import CONNECTIONS, ROOT, task, to
from tests.unit.tasks.task_files import written


def host_file(timeout: timedelta | None = timedelta(hours=2), *, batch: int = 100, prefetch: int = 0) -> HostFile:
    return HostFile("host.json", timeout, batch, batch, prefetch, timedelta(hours=2), 1, 200)


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize(("renewal", "calls"), [(20, 1), (19, 1), (20, 2)])
def test_host_file_must_renew_locks_and_keep_sessions_in_order_for_single_dispatch(
    folder: Path, renewal: int, calls: int, *, sessions: bool
) -> None:
    rejects = "{connection: west, queue: rejected}"
    source = f"{{connection: west, queue: orders, sessions: {str(sessions).lower()}}}"
    for name, more in (("one", "dispatch: single"), ("many", "")):
        text = task(name, source.replace("orders", name), to("east", f"queue: {name}"), rejects=rejects, more=more)
        folder.joinpath(f"tasks/{name}.yaml").write_text(text, encoding="utf-8")
    host = replace(host_file(), max_auto_lock_renewal_duration=timedelta(minutes=renewal))
    host = replace(host, max_concurrent_calls_per_session=calls)
    found = [each for each in review(load(folder), Entities({}), host) if "one.yaml" in each.path]
    expected = ["hold-near-renewal"] * (renewal < 20) + ["calls-reorder-session"] * (calls > 1 and sessions)
    assert [each.check.name for each in found] == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (host_file(), []),
        (host_file(None), []),
        (host_file(timedelta(minutes=20)), []),
        # Five batches of tasks are held for 15 minutes.
        (host_file(timedelta(minutes=19)), ["hold-near-timeout"] * 5),
        (host_file(prefetch=99), ["prefetch-bounds-batch"]),
        (host_file(prefetch=100), []),
        # FN54: azure-functions-python-worker 1870.
        (replace(host_file(), telemetry_mode="OpenTelemetry"), ["second-telemetry"]),
    ],
)
def test_host_file_must_leave_room_for_holds_and_batches(host: HostFile, expected: list[str]) -> None:
    assert [each.check.name for each in review(load(ROOT / "config"), Entities({}), host)] == expected


@pytest.mark.parametrize(
    ("encoding", "count", "expected"),
    [("none", 1000, []), ("base64", 5, ["host-decodes-queues", "poison-after-few"]), ("none", 5, ["poison-after-few"])],
)
def test_host_file_must_pass_texts_of_storage_queues_on_often(encoding: str, count: int, expected: list[str]) -> None:
    host = replace(host_file(), queues_encoding=encoding, max_dequeue_count=count)
    found = review(load(ROOT / "config/examples/storage-queue"), Entities({}), host)
    assert [each.check.name for each in found] == expected


@pytest.mark.parametrize(("batch", "safe"), [(100, 16), (17, 16), (16, None), (1, None)])
def test_largest_batch_is_computed_from_the_size_of_messages(batch: int, safe: int | None) -> None:
    configuration = load(ROOT / "config")
    files = [str(ROOT / f"infra/emulators/{site}.json") for site in ("west", "east")]
    text = largest_batch(configuration, entities_of(files, configuration.connections), host_file(batch=batch))
    if safe is None:
        assert text is None
    else:
        assert text is not None
        assert f"({batch} messages)" in text
        assert f"set maxMessageBatchSize to {safe} in host.json" in text


def test_largest_batch_of_unknown_entities_is_unknown() -> None:
    assert largest_batch(load(ROOT / "config"), Entities({}), host_file()) is None


def hubs_file(folder: Path, name: str) -> Path:
    path = folder / f"{name}.json"
    hub = {"Name": "telemetry", "PartitionCount": 2, "ConsumerGroups": []}
    document = {"UserConfig": {"NamespaceConfig": [{"Type": "EventHub", "Name": "ns", "Entities": [hub]}]}}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture
def connections(tmp_path: Path) -> Mapping[str, Connection]:
    return load(written(tmp_path, task("t", "{connection: west, queue: a}", to("east")), CONNECTIONS)).connections


@pytest.mark.parametrize("name", ["hubs", "HUBS", "west"])
def test_a_file_is_for_the_connection_of_its_kind_with_its_name(
    tmp_path: Path, connections: dict[str, Connection], name: str
) -> None:
    entities = entities_of([str(hubs_file(tmp_path, name))], connections)
    assert entities.namespace(connections["hubs"]) is not None
    assert entities.namespace(connections["west"]) is None


def test_a_connection_can_be_named_before_the_file(tmp_path: Path, connections: dict[str, Connection]) -> None:
    entities = entities_of([f"hubs={hubs_file(tmp_path, 'anything')}"], connections)
    assert entities.hub(connections["hubs"], "Telemetry") is not None


def test_entities_file_without_a_connection_is_a_problem(tmp_path: Path, connections: dict[str, Connection]) -> None:
    with pytest.raises(ConfigError) as caught:
        entities_of([str(hubs_file(tmp_path, "east"))], connections)
    assert "is for 'east', which is not a connection of this kind" in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, []),
        ({"EnablePartitioning": True}, ["partitioned-duplicates"]),
        ({"SupportOrdering": False}, ["no-support-ordering"]),
    ],
)
def test_a_topic_that_slows_messages_down_or_reorders_them_is_found(
    found: Any, properties: dict[str, object], expected: list[str]
) -> None:
    one = task("t", "{connection: west, queue: orders}", to("east", "topic: orders"))
    detection = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "P1D"}
    topics = [{"Name": "orders", "Properties": detection | properties, "Subscriptions": [{"Name": "all"}]}]
    assert [name for name, _ in found(one, east={"Topics": topics})] == expected


def test_entities_that_delete_themselves_are_found(found: Any) -> None:
    """SS25: a task that is off receives nothing, and a receiver that waits for a session does not count as use."""
    one = task("t", "{connection: west, topic: orders, subscription: all}", to("east"))
    idle = {"AutoDeleteOnIdle": "P1D"}
    west = {"Topics": [{"Name": "orders", "Subscriptions": [{"Name": "all", "Properties": idle}]}]}
    queues = [{"Name": "orders", "Properties": idle}]
    places = [path for name, path in found(one, west=west, east={"Queues": queues}) if name == "deletes-itself"]
    assert places == ["source", "routes[0].target"]


def test_entities_that_forward_are_found(found: Any) -> None:
    one = task("t", "{connection: west, queue: orders}", to("east"))
    forwarding = {"ForwardTo": "last", "RequiresDuplicateDetection": True}
    queues = [{"Name": "orders", "Properties": forwarding}, {"Name": "last"}]
    assert ("forwarded", "routes[0].target") in found(one, east={"Queues": queues})
