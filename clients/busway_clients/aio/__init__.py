"""The same for asyncio, with the senders and receivers of `azure.servicebus.aio`."""

from busway_clients.aio.active import ActiveSender
from busway_clients.aio.deduplicating import DeduplicatingReceiver
from busway_clients.aio.durable import DurableSender
from busway_clients.aio.passive import PassiveSender
from busway_clients.endpoints.aio.receiver import FollowingReceiver
from busway_clients.endpoints.aio.sender import FollowingSender
from busway_clients.endpoints.aio.watch import EndpointWatch

__all__ = [
    "ActiveSender",
    "DeduplicatingReceiver",
    "DurableSender",
    "EndpointWatch",
    "FollowingReceiver",
    "FollowingSender",
    "PassiveSender",
]
