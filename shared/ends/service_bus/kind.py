"""The record of Azure Service Bus."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from shared.ends.kind import Holds, Kind, OutputPlace
from shared.ends.namespace import SETTING_FORM
from shared.ends.service_bus.clients import service_bus_client
from shared.message.mapping import event_into_message
from shared.protocols import Output

if TYPE_CHECKING:
    from shared.ends.service_bus.site import ServiceBusSite


def _output(place: OutputPlace) -> Output:
    from shared.ends.service_bus.output import ServiceBusOutput

    return ServiceBusOutput(place.site, partial(service_bus_client, place.setting, place.settings))


def _site(name: str, setting: str, settings: Mapping[str, str], most_peeked: int | None) -> "ServiceBusSite":
    from shared.ends.service_bus.administration import administration_opener
    from shared.ends.service_bus.site import ServiceBusSite

    administration = administration_opener(setting, settings)
    return ServiceBusSite(name, partial(service_bus_client, setting, settings), administration, most_peeked)


KIND = Kind(
    name="service-bus",
    rank=1,
    noun="a queue or topic of Service Bus",
    holds=Holds.MESSAGES,
    setting=SETTING_FORM,
    output=_output,
    sources=frozenset(("queue", "topic")),
    targets=frozenset(("queue", "topic")),
    is_namespace=True,
    has_dead_letters=True,
    has_broker_replacement=True,
    fit_event=event_into_message,
    sends_at_once=True,
    settles_singly=True,
    system="servicebus",
    open_site=_site,
)
