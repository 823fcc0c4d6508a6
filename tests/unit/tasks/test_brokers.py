"""Connections of kinds amqp and kafka: where they may be used, and what is opened for them."""

import subprocess
import sys
from pathlib import Path

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig, TopicConfig
from cli.topology.deployment import deployment_of
from cli.topology.needs import needs_of
from cli.topology.plan import load_needs
from shared.amqp.values import TRUE
from shared.assembly.outputs import open_outputs, output_with_secret
from shared.assembly.pipelines import assemble
from shared.ends.amqp.output import AmqpOutput
from shared.ends.kafka.output import KafkaOutput
from shared.ends.kind import OutputPlace
from shared.ends.registry import kind
from shared.ends.renewed import RenewedOutput
from shared.errors import ConfigError, TargetRefused
from shared.review import review
from shared.review.entities import Entities
from shared.tasks.files import Configuration, load
from tests.messages import message
from tests.unit.tasks import task_files

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
hubs: {kind: event-hubs, setting: HUBS}
rabbit: {kind: amqp, setting: RABBIT}
"""
KAFKA = CONNECTIONS.replace(
    "rabbit: {kind: amqp, setting: RABBIT}", "rabbit: {kind: kafka, setting: RABBIT, headers: amqp}"
)
WEST = "Endpoint=sb://west.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=azE="
RABBIT = "amqps://busway:s3cret@rabbit.example"


def written(folder: Path, task: str, connections: str = CONNECTIONS) -> Path:
    return task_files.written(folder, task, connections)


def task(*targets: str, source: str = "{connection: west, queue: orders}", more: str = "") -> str:
    routes = "".join(f"  - {{target: {{connection: rabbit, {target}}}}}\n" for target in targets)
    return f"task: copy\nsource: {source}\nroutes:\n{routes}{more}"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return load(written(tmp_path, task("queue: orders", "topic: news", "address: /queues/orders")))


TARGET = "routes[0].target.connection: "
EMPTY = "routes[0].target: has an empty name, expected that of a queue, topic, hub or address"
AMQP_FAULTS = [
    (task("hub: orders"), TARGET + "'rabbit' is of kind amqp, expected event-hubs"),
    (
        task("queue: q", source="{connection: rabbit, queue: orders}"),
        "source.connection: 'rabbit' is of kind amqp, expected service-bus or storage-queue",
    ),
    (task("address: q").replace("rabbit", "west"), TARGET + "'west' is of kind service-bus, expected amqp"),
    (
        task("queue: q").replace("}}", "}, via: binding}"),
        "routes[0].via: 'rabbit' is of kind amqp, which has no output binding (remove `via: binding`)",
    ),
    (
        task("queue: q", more="heartbeat: {every: PT1M}\n"),
        "heartbeat: has a target of kind amqp, which hides no heartbeats (set `visible: true`, or remove it)",
    ),
    (
        task("queue: q", "topic: q"),
        "'q' of rabbit is a topic here and elsewhere a queue (give one of them a connection of its own)",
    ),
    (
        task("queue: q", "address: q"),
        "'q' of rabbit is an address here and elsewhere a queue (give one of them a connection of its own)",
    ),
    (task('address: ""'), EMPTY),
    (task('queue: ""'), EMPTY),
]
KAFKA_FAULTS = [
    (task("queue: q"), TARGET + "'rabbit' is of kind kafka, expected service-bus or amqp or storage-queue"),
    (
        task("topic: t", source="{connection: rabbit, queue: orders}"),
        (
            "source.connection: 'rabbit' is of kind kafka, expected service-bus or storage-queue (forward the topic"
            " to an event hub with `busway forward`)"
        ),
    ),
    (
        task("topic: t").replace("}}", "}, via: binding}"),
        "routes[0].via: 'rabbit' is of kind kafka, which has no output binding (remove `via: binding`)",
    ),
    (
        task("topic: t", more="heartbeat: {every: PT1M}\n"),
        "heartbeat: has a target of kind kafka, which hides no heartbeats (set `visible: true`, or remove it)",
    ),
]


@pytest.mark.parametrize(
    ("connections", "text", "expected"),
    [(CONNECTIONS, *each) for each in AMQP_FAULTS] + [(KAFKA, *each) for each in KAFKA_FAULTS],
)
def test_a_broker_is_refused_where_it_is_not_reached(
    tmp_path: Path, connections: str, text: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(written(tmp_path, text, connections))
    assert str(caught.value) == f"{tmp_path}/tasks/all.yaml: {expected}"


@pytest.mark.parametrize(("address", "is_there"), [("orders", True), ("news", True), ("/queues/orders", False)])
def test_an_address_is_a_queue_or_topic_of_the_namespace_that_replaces_the_broker(
    tmp_path: Path, address: str, *, is_there: bool
) -> None:
    configuration = load(written(tmp_path, task(f"address: {address}", more="rejects: {connection: west, queue: r}\n")))
    namespace = NamespaceConfig(name="r", queues=(QueueConfig(name="orders"),), topics=(TopicConfig(name="news"),))
    found = [str(each) for each in review(configuration, Entities({"RABBIT": namespace}))]
    assert any(f"rabbit has no queue or topic {address}" in each for each in found) != is_there
    assert not any("has no hub" in each for each in found)


def test_headers_have_a_form_in_kafka_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has headers, expected only for kind kafka"):
        load(written(tmp_path, task("queue: q"), KAFKA.replace("kind: kafka", "kind: amqp")))


def test_kafka_is_opened_with_its_form_of_headers_and_nothing_is_planned_for_it(tmp_path: Path) -> None:
    configuration = load(written(tmp_path, task("topic: t"), KAFKA))
    with pytest.raises(ConfigError, match="rabbit: app setting RABBIT: the app setting is not a URL of Kafka brokers"):
        open_outputs(configuration, {"WEST": WEST, "HUBS": WEST, "RABBIT": RABBIT})
    settings = {"WEST": WEST, "HUBS": WEST, "RABBIT": "kafkas://u:p@broker.example"}
    assert isinstance(open_outputs(configuration, settings)["rabbit"], KafkaOutput)
    secret = load(written(tmp_path / "other", task("topic: t"), KAFKA.replace("setting: RABBIT", "secret: rabbit")))
    assert isinstance(open_outputs(secret, settings | {"BUSWAY_KEY_VAULT": "https://v"})["rabbit"], RenewedOutput)
    place = OutputPlace("there", "rabbit", {})
    opened = output_with_secret(kind("kafka"), place, "kafkas://u:p@broker.example")
    assert isinstance(opened, KafkaOutput)
    with pytest.raises(TargetRefused, match="there: secret rabbit is not a URL of Kafka brokers"):
        output_with_secret(kind("kafka"), place, "nothing")
    needs = needs_of(configuration, None)
    assert [each["alias"] for each in deployment_of(configuration, needs)["sites"]] == ["west", "hubs"]
    assert kind("kafka").fit("event-hubs") is None
    assert not [each for each in review(configuration, Entities({})) if "rabbit" in str(each)]


def test_an_app_without_kafka_does_not_import_its_client(tmp_path: Path) -> None:
    written(tmp_path, task("queue: q"))
    code = (
        "import sys; from pathlib import Path; from shared.tasks.files import load;"
        "from shared.assembly.outputs import open_outputs, output_with_secret;"
        f"open_outputs(load(Path({str(tmp_path)!r})), {{'WEST': {WEST!r}, 'HUBS': {WEST!r}, 'RABBIT': {RABBIT!r}}});"
        # The key of a Kafka producer is also on the events of a hub.
        "print([each for each in sys.modules if 'kafka' in each and each != 'shared.message.kafka_key'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"WEST": WEST, "HUBS": WEST}, "the app setting is missing"),
        ({"WEST": WEST, "HUBS": WEST, "RABBIT": "amqp://u:s3cret@rabbit"}, "password to rabbit unencrypted"),
        ({"WEST": WEST, "HUBS": WEST, "RABBIT": WEST}, "is not a URL of an AMQP broker"),
    ],
)
def test_a_setting_that_is_no_url_is_refused(
    configuration: Configuration, settings: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        open_outputs(configuration, settings)
    assert str(caught.value).startswith("connections.yaml: rabbit: app setting RABBIT: ")
    assert "s3cret" not in str(caught.value)


def test_each_target_opens_with_its_capability(configuration: Configuration) -> None:
    output = open_outputs(configuration, {"WEST": WEST, "HUBS": WEST, "RABBIT": RABBIT})["rabbit"]
    assert isinstance(output, AmqpOutput)
    assert configuration.capabilities("rabbit") == {"orders": "queue", "news": "topic"}
    assert configuration.capabilities("west") == {}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{connection: west, queue: orders}", True),
        ("{connection: west, queue: orders, sessions: true}", False),
        ("{connection: hubs, hub: events}", False),
    ],
)
def test_a_batch_goes_in_several_calls_if_its_source_has_no_order(tmp_path: Path, source: str, expected: bool) -> None:
    text = task("queue: orders", source=source, more="rejects: {connection: rabbit, queue: rejected}\n")
    configuration = load(written(tmp_path, text))
    opened = open_outputs(configuration, {"WEST": WEST, "HUBS": WEST, "RABBIT": RABBIT})
    [assembled] = assemble(configuration, opened)
    assert assembled.rejects is not None
    assert assembled.rejects.at_once is expected


def test_messages_for_a_broker_are_durable_and_otherwise_unchanged() -> None:
    fit = kind("amqp").fit("service-bus")
    assert fit is not None
    original, expected = message(time_to_live=60_000), message(time_to_live=60_000)
    fit(original)
    expected.durable = TRUE
    assert original.encode() == expected.encode()


def test_nothing_is_wrong_with_a_broker_and_no_entities_or_roles_are_planned_for_it(
    configuration: Configuration, tmp_path: Path
) -> None:
    alone = load(written(tmp_path / "alone", task("address: /queues/orders")))
    assert not [each for each in review(alone, Entities({})) if "rabbit" in str(each)]
    needs = needs_of(configuration, None)
    assert set(needs.aliases.values()) == {"west", "hubs"}
    assert [each["alias"] for each in deployment_of(configuration, needs)["sites"]] == ["west", "hubs"]
    with pytest.raises(ConfigError, match="rabbit: is of kind amqp, expected service-bus or event-hubs"):
        load_needs(tmp_path, ["rabbit"])
    tmp_path.joinpath("topology.yaml").write_text("rabbit: {queues: {orders: {}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="rabbit: is of kind amqp, whose entities Busway does not create"):
        load_needs(tmp_path)
