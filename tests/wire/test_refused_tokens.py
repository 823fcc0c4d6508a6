"""Why the service refuses a token, and the remedy that each end of Busway names."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, Right, SharedAccessKey
from busway_broker.thread import RunningBroker
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.namespace import Namespace
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.errors import BuswayError
from tests.wire.sending import event_hubs, outgoing, sent, service_bus

type Attempt = Callable[[dict[str, str], str], Coroutine[None, None, BuswayError | None]]

_OWNER = SharedAccessKey(name="owner", key="right key")
_LISTENER = SharedAccessKey(name="owner", key="right key", rights=frozenset((Right.LISTEN,)))
_SENDER = SharedAccessKey(name="owner", key="right key", rights=frozenset((Right.SEND,)))
_OPEN = NamespaceConfig(name="n", queues=(QueueConfig(name="e"),), shared_access_keys=(_OWNER,))

# The SDK forgets to close the socket of a connection that was refused.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


async def send_to_queue(settings: dict[str, str], entity: str) -> BuswayError | None:
    return (await sent(service_bus(settings["N"]), entity, [outgoing("m")]))[0][0]


async def send_to_hub(settings: dict[str, str], entity: str) -> BuswayError | None:
    return (await sent(event_hubs(settings["N"]), entity, [outgoing("m")]))[0][0]


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


def answer_to(attempt: Attempt, config: NamespaceConfig, entity: str, key: str) -> BuswayError | None:
    if attempt in (send_to_hub, read_hub):
        config = replace(config, queues=(), hubs=(HubConfig(name="e"),))
    with RunningBroker([config]) as broker:
        shared = f"SharedAccessKeyName=owner;SharedAccessKey={key};UseDevelopmentEmulator=true"
        return asyncio.run(attempt({"N": f"Endpoint=sb://localhost:{broker.port('n')};{shared}"}, entity))


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
    answer = answer_to(attempt, config, entity, key or "any")
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
    assert words in str(answer_to(attempt, config, "e", "right key"))
