"""Clients for producers and consumers that use two or more Service Bus namespaces as one."""

from busway_clients._sync.active_sender import ActiveSender
from busway_clients._sync.deduplicating_receiver import DeduplicatingReceiver
from busway_clients._sync.durable_sender import DurableSender
from busway_clients._sync.endpoints.receiver import FollowingReceiver
from busway_clients._sync.endpoints.sender import FollowingSender
from busway_clients._sync.endpoints.watch import EndpointWatch
from busway_clients._sync.passive_sender import PassiveSender
from busway_clients.endpoints.endpoint import Endpoint, EndpointUnresolved
from busway_clients.endpoints.file import FileSource
from busway_clients.endpoints.url import UrlSource
from busway_clients.errors import (
    ClaimLost,
    ClientsError,
    ConnectionEnded,
    DeadLetter,
    MissingExtra,
    NotARelay,
    NotSynchronous,
    OutboxFull,
    OutboxInUse,
    RelayError,
    RelayFailed,
    RelayRefused,
    RelayUnavailable,
    SendFailed,
    StoreRefused,
    StoreUnavailable,
    Unencodable,
    UnusableFile,
    WrongUse,
)
from busway_clients.receivers.messages import Handled, Watermark, by_message_id, by_property
from busway_clients.receivers.stores.store import Claim, LeasedStore, MemoryStore, SqliteStore, State, Store
from busway_clients.senders.outbox import Accepted, Drained, Held, Outbox
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.roles import FileRoles, MemoryRoles, Roles, RoleState, RoleStore

__all__ = [
    "Accepted",
    "ActiveSender",
    "Claim",
    "ClaimLost",
    "ClientsError",
    "ConnectionEnded",
    "DeadLetter",
    "DeduplicatingReceiver",
    "Delivery",
    "Drained",
    "DurableSender",
    "Endpoint",
    "EndpointUnresolved",
    "EndpointWatch",
    "FileRoles",
    "FileSource",
    "FollowingReceiver",
    "FollowingSender",
    "Handled",
    "Held",
    "LeasedStore",
    "MemoryRoles",
    "MemoryStore",
    "MissingExtra",
    "NotARelay",
    "NotSynchronous",
    "Outbox",
    "OutboxFull",
    "OutboxInUse",
    "Outcome",
    "PassiveSender",
    "RelayError",
    "RelayFailed",
    "RelayRefused",
    "RelayUnavailable",
    "RoleState",
    "RoleStore",
    "Roles",
    "SendFailed",
    "SqliteStore",
    "State",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Unencodable",
    "UnusableFile",
    "UrlSource",
    "Watermark",
    "WrongUse",
    "by_message_id",
    "by_property",
]
