"""The look of `busway smoke` at a Kafka topic."""

import asyncio

import pytest

from cli.local_services.kafka import KafkaCluster
from cli.smoke.probes import MARK
from cli.smoke.topic_watch import TopicWatch
from shared.amqp.values import string
from shared.ends.kafka.endpoint import kafka_endpoint
from shared.ends.kafka.output import KafkaOutput
from shared.ends.kafka.record import HeaderForm
from shared.errors import ConfigError
from shared.protocols import Outgoing
from shared.resend.letters import Letter
from tests.messages import delivered
from tests.wire.sending import closing


@pytest.mark.parametrize("form", ["text", "amqp"])
def test_new_records_are_seen_with_id_mark_and_session(form: HeaderForm) -> None:
    async def run(cluster: KafkaCluster) -> list[Letter]:
        url = f"kafka://{cluster.servers}"
        output = KafkaOutput("stream", kafka_endpoint(url), form)
        watch = TopicWatch("stream", "STREAM", "t", {"STREAM": url})
        content = delivered(None, message_id="m-1", session_id="s", named={MARK: string("run")})
        await output.send("t", [Outgoing(content, "old", "s", None)], timeout_seconds=20)
        await watch.start()
        await output.send("t", [Outgoing(content, "m-1", "s", None)], timeout_seconds=20)
        seen: list[Letter] = []
        async with asyncio.timeout(30):
            while not seen:
                seen += await watch.look()
        seen += await watch.look()
        await watch.close()
        await output.close()
        return seen

    with KafkaCluster() as cluster:
        cluster.create_topic("t", 1)
        [letter] = asyncio.run(run(cluster))
    assert letter.origin == ("stream", "t", None)
    assert (letter.message_id, letter.session_id) == ("m-1", "s")
    assert letter.message is not None
    assert letter.message.application_property(MARK) == string("run")


def test_a_topic_that_is_missing_cannot_be_watched() -> None:
    async def run(cluster: KafkaCluster) -> None:
        async with closing(TopicWatch("stream", "STREAM", "none", {"STREAM": f"kafka://{cluster.servers}"})) as watch:
            await watch.start()

    with KafkaCluster() as cluster, pytest.raises(ConfigError, match="stream/none: cannot be read"):
        asyncio.run(run(cluster))
