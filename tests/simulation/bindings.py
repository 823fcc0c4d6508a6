"""Output bindings: what the worker of an instance hands to the host, and how the host sends it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from azure.servicebus import ServiceBusMessage

from busway_broker.errors import Refusal
from functions.output_bindings import with_outputs
from host.outputs import Outputs
from host.protos import ParameterBinding, TypedData
from host.settings import Settings
from host.worker import SERVICE_BUS, Function
from shared.amqp.sections import data
from shared.line.binding_output import BindingOutput
from tests.simulation.faults import Operation
from tests.simulation.network import Channel, Cut, Network
from tests.simulation.process import Process
from tests.simulation.senders import SenderLink
from tests.simulation.site import Site

type Body = Callable[..., Awaitable[None]]

_PATIENCE_SECONDS = 60.0


def bound(body: Body, bindings: list[BindingOutput]) -> tuple[Body, dict[str, Mapping[str, Any]]]:
    """Return the body of a function with its output bindings, and these as the worker indexes them."""
    app: Any = SimpleNamespace(service_bus_queue_output=lambda **_: lambda function: function)
    function: Any = with_outputs(app, body, bindings, None)
    return function, {
        f"output_{number}": {
            "name": f"output_{number}",
            "type": SERVICE_BUS,
            "queueName": binding.entity,
            "connection": binding.site,
        }
        for number, binding in enumerate(bindings)
    }


class Given:
    """An output of an invocation, as `func.Out`."""

    value: list[str] | None = None

    def set(self, value: list[str]) -> None:
        """Keep the texts."""
        self.value = value


def handed_over(outputs: Mapping[str, Given]) -> tuple[ParameterBinding, ...]:
    """Return the outputs that were set, as the worker encodes them."""
    return tuple(
        ParameterBinding(name, TypedData(json=json.dumps(output.value)))
        for name, output in outputs.items()
        if output.value is not None
    )


class _Sender:
    """A sender to one queue."""

    def __init__(self, network: Network, owner: Process, site: Site, queue: str) -> None:
        self._open = partial(Channel, network, owner, site, f"{site.name}/{queue}")
        self._queue = queue
        self._limit = owner.batch_limit
        self._link: SenderLink | None = None

    async def send_messages(self, message: ServiceBusMessage) -> None:
        """Send one message; raises OSError as the SDK does if it does not arrive."""
        if self._link is None or self._link.channel.is_cut:
            self._link = SenderLink(self._open(), self._queue, self._limit)
        link, content = self._link, data(b"".join(message.body))
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await link.channel.request(Operation.SEND, lambda: link.publish(content, 0))
        except (Cut, Refusal) as error:
            raise ConnectionError(str(error)) from error


class SimulatedOutputs(Outputs):
    """The host's own outputs; what the SDK's senders do over a socket, these do over a channel."""

    def __init__(self, network: Network, owner: Process, sites: Mapping[str, Site]) -> None:
        """Send to *sites*."""
        super().__init__(Settings({}))
        self._open = partial(_Sender, network, owner)
        self._sites = sites
        self._links: dict[tuple[str, str], _Sender] = {}

    def _sender(self, function: Function, binding: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the host's own signature
        place = binding["connection"], binding["queueName"]
        if place not in self._links:
            self._links[place] = self._open(self._sites[place[0]], place[1])
        return self._links[place]
