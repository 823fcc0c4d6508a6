"""Why the service refuses a token, and the remedy that each end of Busway names."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, Right, SharedAccessKey
from busway_broker.thread import RunningBroker
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.output import EventHubsOutput
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import BuswayError
from shared.protocols import Outgoing
from tests.messages import delivered

type Attempt = Callable[[dict[str, str], str], Coroutine[None, None, BuswayError | None]]

_OWNER = SharedAccessKey(name="owner", key="right key")
_LISTENER = SharedAccessKey(name="owner", key="right key", rights=frozenset((Right.LISTEN,)))
_SENDER = SharedAccessKey(name="owner", key="right key", rights=frozenset((Right.SEND,)))
_OPEN = NamespaceConfig(name="n", queues=(QueueConfig(name="e"),), shared_access_keys=(_OWNER,))
_MESSAGE = Outgoing(delivered(None, message_id="m", body=b"body"), "m", None, None)

# The SDK forgets to close the socket of a connection that was refused.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


async def send_to_queue(settings: dict[str, str], entity: str) -> BuswayError | None:
    output = ServiceBusOutput("n", lambda: service_bus_client("N", settings))
    try:
        return (await output.send(entity, [_MESSAGE], timeout_seconds=20))[0]
    finally:
        await output.close()


async def send_to_hub(settings: dict[str, str], entity: str) -> BuswayError | None:
    output = EventHubsOutput("n", lambda hub: event_hub_client("N", settings, hub))
    try:
        return (await output.send(entity, [_MESSAGE], timeout_seconds=20))[0]
    finally:
        await output.close()


async def receive(settings: dict[str, str], entity: str) -> BuswayError | None:
    connection = None
    try:
        connection = await ServiceBusConnection.open(
            Namespace("N", settings["N"]), {"queue_name": entity}, sessions=False
        )
        await connection.attach()
    except BuswayError as error:
        return error
    finally:
        if connection is not None:
            await connection.close()
    return None


async def read_hub(settings: dict[str, str], entity: str) -> BuswayError | None:
    hub = EventHub(Namespace("N", settings["N"]), entity, "$Default")
    try:
        await hub.partition_ids()
    except BuswayError as error:
        return error
    finally:
        await hub.close()
    return None


_REFUSALS = (
    (_OPEN, "wrong key", "e", "the key is wrong"),
    (_OPEN, "right key", "missing", "not-found"),
    (replace(_OPEN, public_network_access=False), "right key", "e", "the firewall of the namespace"),
    (replace(_OPEN, shared_access_keys=(), public_network_access=False), "", "e", "the firewall of the namespace"),
    (replace(_OPEN, disable_local_auth=True), "right key", "e", "keys are switched off at the namespace"),
    (_OPEN, "right key", "e", ""),
)


@pytest.mark.parametrize(
    ("attempt", "config", "key", "entity", "words"),
    [
        (attempt, *refusal)
        for attempt in (send_to_queue, send_to_hub, receive, read_hub)
        for refusal in _REFUSALS
        # The SDK of hubs tries for 15 seconds.
        if attempt is not read_hub or refusal in (_REFUSALS[0], _REFUSALS[-1])
    ],
)
def test_each_end_names_why_its_token_is_refused(
    attempt: Attempt, config: NamespaceConfig, key: str, entity: str, words: str
) -> None:
    if attempt in (send_to_hub, read_hub):
        config = replace(config, queues=(), hubs=(HubConfig(name="e"),))
    with RunningBroker([config]) as broker:
        shared = f"SharedAccessKeyName=owner;SharedAccessKey={key or 'any'};UseDevelopmentEmulator=true"
        settings = {"N": f"Endpoint=sb://localhost:{broker.port('n')};{shared}"}
        answer = asyncio.run(attempt(settings, entity))
    assert (answer is not None) == bool(words)
    assert words in str(answer)
    assert "right key" not in str(answer)


@pytest.mark.parametrize(
    ("attempt", "rights", "words"),
    [
        (send_to_queue, _LISTENER, "the right to send is missing"),
        (send_to_hub, _LISTENER, "the right to send is missing"),
        (receive, _SENDER, "the right to listen is missing"),
    ],
)
def test_each_end_names_the_right_that_is_missing(attempt: Attempt, rights: SharedAccessKey, words: str) -> None:
    config = replace(_OPEN, shared_access_keys=(rights,))
    if attempt is send_to_hub:
        config = replace(config, queues=(), hubs=(HubConfig(name="e"),))
    with RunningBroker([config]) as broker:
        settings = {
            "N": f"Endpoint=sb://localhost:{broker.port('n')};SharedAccessKeyName=owner;SharedAccessKey=right key;"
            "UseDevelopmentEmulator=true"
        }
        assert words in str(asyncio.run(attempt(settings, "e")))
