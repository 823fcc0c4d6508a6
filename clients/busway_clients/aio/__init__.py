"""The asyncio versions of the clients, which use the senders and receivers of `azure.servicebus.aio`."""

from busway_clients.aio.active_sender import ActiveSender
from busway_clients.aio.deduplicating_receiver import DeduplicatingReceiver
from busway_clients.aio.durable_sender import DurableSender
from busway_clients.aio.endpoints.receiver import FollowingReceiver
from busway_clients.aio.endpoints.sender import FollowingSender
from busway_clients.aio.endpoints.watch import EndpointWatch
from busway_clients.aio.passive_sender import PassiveSender

__all__ = [
    "ActiveSender",
    "DeduplicatingReceiver",
    "DurableSender",
    "EndpointWatch",
    "FollowingReceiver",
    "FollowingSender",
    "PassiveSender",
]
