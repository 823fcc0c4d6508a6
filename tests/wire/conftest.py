"""The broker of broker/tests, for tests that use entities of it."""

from broker.tests.conftest import _impatient_clients, broker, client, entity, publish, receive, take

__all__ = ["_impatient_clients", "broker", "client", "entity", "publish", "receive", "take"]
