"""What producers and consumers import to use two or more Service Bus namespaces as one."""

from busway_clients.errors import (
    ClaimLost,
    ClientsError,
    OutboxFull,
    OutboxInUse,
    SendFailed,
    StoreUnavailable,
    UnusableFile,
    WrongUse,
)
from busway_clients.senders.active import ActiveSender
from busway_clients.senders.durable import Accepted, Drained, DurableSender
from busway_clients.senders.outbox import Held, Outbox
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.passive import PassiveSender, RoleState
from busway_clients.senders.roles import FileRoles, MemoryRoles, Roles, RoleStore

__all__ = [
    "Accepted",
    "ActiveSender",
    "ClaimLost",
    "ClientsError",
    "Delivery",
    "Drained",
    "DurableSender",
    "FileRoles",
    "Held",
    "MemoryRoles",
    "Outbox",
    "OutboxFull",
    "OutboxInUse",
    "Outcome",
    "PassiveSender",
    "RoleState",
    "RoleStore",
    "Roles",
    "SendFailed",
    "StoreUnavailable",
    "UnusableFile",
    "WrongUse",
]
