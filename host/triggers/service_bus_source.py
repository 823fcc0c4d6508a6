"""The queue or subscription that a serviceBusTrigger binding names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from host.settings import Settings
from host.worker import Function
from shared.ends.namespace import Namespace
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.errors import ConfigError, Problem


@dataclass(frozen=True, slots=True)
class ServiceBusSource:
    """The source of a function's messages, and whether the host completes them."""

    connection: Namespace
    entity: Mapping[str, str]
    has_sessions: bool
    auto_complete: bool

    @classmethod
    def of(cls, function: Function, settings: Settings) -> "ServiceBusSource":
        """Return the source of a function's trigger; a ConfigError for a binding without one."""
        trigger = function.trigger
        path = f"{function.name}.{function.parameter}"
        names = {
            key: settings.resolve(str(trigger[name]), f"{path}.{name}")
            for key, name in _ENTITY_NAMES.items()
            if trigger.get(name)
        }
        if set(names) not in ({"queue_name"}, {"topic_name", "subscription_name"}):
            raise ConfigError([Problem(path, "expected queueName, or topicName and subscriptionName")])
        return cls(
            settings.connection(settings.resolve(_connection_name(trigger), path), path),
            names,
            trigger.get("isSessionsEnabled") is True,
            # autoCompleteMessages of host.json has no effect: for Python the attribute always has a value (measured).
            trigger.get("autoCompleteMessages") is not False,
        )

    async def open(self) -> ServiceBusConnection:
        """Return a connection to the entity."""
        return await ServiceBusConnection.open(self.connection, self.entity, sessions=self.has_sessions)


_ENTITY_NAMES = {"queue_name": "queueName", "topic_name": "topicName", "subscription_name": "subscriptionName"}


def _connection_name(trigger: Mapping[str, Any]) -> str:
    return str(trigger.get("connection") or "AzureWebJobsServiceBus")
