"""The listeners of an app's functions, by the types of their triggers; those of HTTP functions share a server."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from host.checkpoints import Checkpoints
from host.listener import Listener, Stopping
from host.platform import Losing, Platform
from host.settings import HostOptions, Settings
from host.settlement.actions import ActionsCache
from host.triggers.event_hubs import EventHubsListener
from host.triggers.service_bus_batch import ServiceBusBatchListener
from host.triggers.service_bus_single import ServiceBusSingleListener
from host.triggers.service_bus_source import ServiceBusSource
from host.triggers.timer import TimerListener
from host.worker import Function, Worker
from shared.clock import Clock
from shared.ends.event_hubs.receiver import EventHub
from shared.errors import ConfigError, Problem


@dataclass(slots=True)
class Triggers:
    """What the listeners of a host need, and have in common after a restart too."""

    settings: Settings
    options: HostOptions
    worker: Worker
    clock: Clock
    cache: ActionsCache
    checkpoints: Checkpoints
    platform: Platform
    _: KW_ONLY
    wire: bool
    losing: Losing = field(init=False)

    def __post_init__(self) -> None:
        """Count the messages of all listeners together."""
        self.losing = Losing(self.platform.lose_every)

    def listeners(self, functions: Sequence[Function], stopping: Stopping) -> list[Listener]:
        """Return a listener for each function without an HTTP trigger; a ConfigError with all problems."""
        listeners: list[Listener] = []
        problems: list[Problem] = []
        for function in functions:
            try:
                if function.trigger["type"] != "httpTrigger":
                    listeners.append(self._listener(function, stopping))
            except ConfigError as error:
                problems.extend(error.problems)
        if problems:
            raise ConfigError(problems)
        return listeners

    def _listener(self, function: Function, stopping: Stopping) -> Listener:
        kind = function.trigger["type"]
        if kind in ("serviceBusTrigger", "eventHubTrigger") and not function.has_sdk_type:
            problem = "this host passes encoded messages alone, expected an SDK type such as RawMessage"
            raise ConfigError([Problem(f"{function.name}.{function.parameter}", problem)])
        match kind:
            case "serviceBusTrigger":
                listener = ServiceBusBatchListener if function.is_many else ServiceBusSingleListener
                return listener(
                    function,
                    ServiceBusSource.of(function, self.settings),
                    self.options.service_bus,
                    self.worker,
                    self.clock,
                    stopping=stopping,
                    wire=self.wire,
                    losing=self.losing,
                    cache=self.cache,
                )
            case "eventHubTrigger":
                return EventHubsListener(
                    function,
                    _hub_of(function, self.settings),
                    self.options.event_hubs,
                    self.worker,
                    self.clock,
                    stopping=stopping,
                    checkpoints=self.checkpoints,
                    wire=self.wire,
                    losing=self.losing,
                    steal_after=self.platform.steal_after,
                    partition_wait=self.platform.partition_wait,
                )
            case "queueTrigger":
                # Import lazily: only apps with storage queues need this SDK.
                from host.triggers.storage_queue import StorageQueueListener  # noqa: PLC0415 - see above

                return StorageQueueListener(function, self.settings, self.options.queues, self.worker, stopping)
            case "timerTrigger":
                return TimerListener(function, self.settings, self.worker, self.clock, stopping)
            case other:
                raise ConfigError([Problem(function.name, f"this host has no {other}")])


def _hub_of(function: Function, settings: Settings) -> EventHub:
    trigger = function.trigger
    path = f"{function.name}.{function.parameter}"
    if not trigger.get("eventHubName"):
        raise ConfigError([Problem(path, "expected eventHubName")])
    return EventHub(
        settings.connection(settings.resolve(str(trigger.get("connection")), path), path),
        settings.resolve(str(trigger["eventHubName"]), f"{path}.eventHubName"),
        settings.resolve(str(trigger.get("consumerGroup") or "$Default"), f"{path}.consumerGroup"),
    )
