"""Asks Event Hubs over AMQP what exists: its entities are administered in Resource Manager only."""

import threading
from collections.abc import Mapping

from azure.core.exceptions import AzureError
from azure.eventhub import EventHubConsumerClient
from azure.eventhub.exceptions import AuthenticationError, ConnectError, EventHubError

from cli.time_limit import within
from cli.topology.model import DEFAULT_GROUP, Kind, Name
from shared.ends.event_hubs.clients import synchronous_consumer
from shared.ends.namespace import Namespace
from shared.errors import TargetRefused, TargetUnavailable

_SECONDS = 20.0
_MISSING = ("status code: 404", "not-found", "could not be found", "does not exist", "not found")


def partitions_of(name: Name, setting: str, settings: Mapping[str, str], alias: str) -> int | None:
    """
    Return the number of partitions of a hub or of a consumer group's hub, None if it does not exist.

    A consumer group is asked for by attaching to it at the end of a partition: nothing is read. Raises BuswayError.
    """
    hub = name.parts[0]
    group = name.parts[1] if name.kind is Kind.CONSUMER_GROUP else DEFAULT_GROUP

    def ask() -> int | None:
        with synchronous_consumer(Namespace.of(setting, settings, [hub]), hub, group, retry_total=0) as client:
            partitions = client.get_partition_ids()
            if name.kind is Kind.CONSUMER_GROUP and not _exists(client, partitions[0]):
                return None
            return len(partitions)

    late = f"{alias}/{hub}: no answer in {_SECONDS:.0f} s (check the address and the network)"
    try:
        return within(_SECONDS, late, ask)
    except AuthenticationError as error:
        remedy = "give the identity the role Azure Event Hubs Data Receiver, or use a key with the right Listen"
        raise TargetRefused(f"{alias}/{hub}: does not allow reading its properties ({remedy})") from error
    except (EventHubError, AzureError) as error:
        if _is_missing(error):
            return None
        text = str(error).splitlines()[0][:300]
        raise TargetUnavailable(
            f"{alias}/{hub}: cannot be reached: {text} (check the address and the network)"
        ) from error


def _exists(client: EventHubConsumerClient, partition: str) -> bool:
    """Return whether the client's consumer group exists; raises the SDK's error if that cannot be found out."""
    answered = threading.Event()
    failures: list[Exception] = []

    def failed(_: object, error: Exception) -> None:
        failures.append(error)
        answered.set()

    def attached(*_: object) -> None:
        answered.set()

    thread = threading.Thread(
        target=client.receive,
        kwargs={
            "on_event": attached,
            "on_error": failed,
            "partition_id": partition,
            "starting_position": "@latest",
            "max_wait_time": 0.2,
        },
        daemon=True,
    )
    thread.start()
    is_answered = answered.wait(_SECONDS)
    client.close()
    thread.join(_SECONDS)
    if failures:
        if _is_missing(failures[0]):
            return False
        raise failures[0]
    if not is_answered:
        raise ConnectError(f"no answer after {_SECONDS:g} s")
    return True


def _is_missing(error: Exception) -> bool:
    return any(word in str(error).lower() for word in _MISSING)
