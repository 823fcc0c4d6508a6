"""Asks Event Hubs over AMQP what exists: its entities are administered in Resource Manager only."""

import asyncio
from collections.abc import Mapping
from functools import partial

from cli.hub_reader import hub_at
from cli.topology.model import Kind, Name
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.site import HubSite
from shared.ends.look_error import DoesNotExist
from shared.errors import TargetRefused, TargetUnavailable

_SECONDS = 20.0
_NOT_FOUND = "amqp:not-found"


async def partitions_of(name: Name, setting: str, settings: Mapping[str, str], alias: str) -> int | None:
    """
    Return the number of partitions of a hub or of a consumer group's hub, None if it does not exist.

    A consumer group is asked for by attaching to it at the end of a partition: nothing is read. Raises BuswayError.
    """
    site = HubSite(alias, partial(event_hub_client, setting, settings))
    try:
        async with asyncio.timeout(_SECONDS):
            partitions = await site.partitions(name.parts[0])
            if name.kind is Kind.CONSUMER_GROUP and not await _exists(name, setting, settings, min(partitions)):
                return None
            return len(partitions)
    except DoesNotExist:
        return None
    except TimeoutError as error:
        late = f"no answer in {_SECONDS:.0f} s (check the address and the network)"
        raise TargetUnavailable(f"{alias}/{name.parts[0]}: {late}") from error
    finally:
        await site.close()


async def _exists(name: Name, setting: str, settings: Mapping[str, str], partition: str) -> bool:
    hub = hub_at(setting, settings, *name.parts)
    try:
        opened = await hub.open(partition, "@latest", 0)
    except (TargetRefused, TargetUnavailable) as error:
        if _NOT_FOUND in str(error):
            return False
        raise
    finally:
        await hub.close()
    await opened.close()
    return True
