"""The broker as @azure/service-bus and @azure/event-hubs see it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker

SCRIPTS = Path(__file__).parent / "javascript"
PACKAGES = Path(__file__).parents[2] / "node_modules" / "@azure"

NAMESPACE = NamespaceConfig(
    name="js",
    queues=(
        QueueConfig(name="js-queue"),
        QueueConfig(name="js-copy"),
        QueueConfig(name="js-sessions", requires_session=True),
    ),
    topics=(TopicConfig(name="js-topic", subscriptions=(SubscriptionConfig(name="sub"),)),),
    hubs=(HubConfig(name="js-hub", partition_count=2),),
)


@pytest.mark.parametrize(("script", "package"), [("service_bus", "service-bus"), ("event_hubs", "event-hubs")])
def test_the_client_finds_everything_as_it_expects(script: str, package: str) -> None:
    node = shutil.which("node")
    if node is None or not (PACKAGES / package).exists():
        pytest.skip(f"needs node and the npm package @azure/{package}")
    with RunningBroker([NAMESPACE]) as broker:
        run = subprocess.run(  # noqa: S603 - a script of this folder
            [node, SCRIPTS / f"{script}.mjs", broker.connection_string("js")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert run.returncode == 0, run.stderr
