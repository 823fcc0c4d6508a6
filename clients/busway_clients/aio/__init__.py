"""The asyncio versions of the clients, which use the senders and receivers of `azure.servicebus.aio`."""

from busway_clients.aio.active_sender import ActiveSender as ActiveSender
from busway_clients.aio.deduplicating_receiver import DeduplicatingReceiver as DeduplicatingReceiver
from busway_clients.aio.durable_sender import DurableSender as DurableSender
from busway_clients.aio.endpoints.receiver import FollowingReceiver as FollowingReceiver
from busway_clients.aio.endpoints.sender import FollowingSender as FollowingSender
from busway_clients.aio.endpoints.watch import EndpointWatch as EndpointWatch
from busway_clients.aio.passive_sender import PassiveSender as PassiveSender
