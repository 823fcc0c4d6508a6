# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The asyncio versions of the clients, which use the senders and receivers of `azure.servicebus`."""

from busway_clients._sync.active_sender import ActiveSender as ActiveSender
from busway_clients._sync.deduplicating_receiver import DeduplicatingReceiver as DeduplicatingReceiver
from busway_clients._sync.durable_sender import DurableSender as DurableSender
from busway_clients._sync.endpoints.receiver import FollowingReceiver as FollowingReceiver
from busway_clients._sync.endpoints.sender import FollowingSender as FollowingSender
from busway_clients._sync.endpoints.watch import EndpointWatch as EndpointWatch
from busway_clients._sync.passive_sender import PassiveSender as PassiveSender
