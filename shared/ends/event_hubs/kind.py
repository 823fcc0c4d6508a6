"""The record of Azure Event Hubs."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from shared.codecs.envelope import EVENT
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.kind import Fit, Holds, Kind, OutputPlace, SourceOptions
from shared.ends.namespace import SETTING_FORM
from shared.message.mapping import keep_broker_properties, message_into_event, restore_event
from shared.protocols import Output

if TYPE_CHECKING:
    from shared.ends.event_hubs.site import HubSite


def _output(place: OutputPlace) -> Output:
    from shared.ends.event_hubs.output import EventHubsOutput

    return EventHubsOutput(place.site, partial(event_hub_client, place.setting, place.settings))


def _site(name: str, setting: str, settings: Mapping[str, str], _most_peeked: int | None) -> "HubSite":
    from shared.ends.event_hubs.site import HubSite

    return HubSite(name, partial(event_hub_client, setting, settings))


def _restore(source: SourceOptions) -> Fit | None:
    return None if source.form == "envelope" else restore_event


KIND = Kind(
    name="event-hubs",
    rank=2,
    noun="an event hub",
    holds=Holds.EVENTS,
    setting=SETTING_FORM,
    output=_output,
    sources=frozenset(("hub",)),
    targets=frozenset(("hub",)),
    is_namespace=True,
    arrives_as=EVENT,
    fit_message=message_into_event,
    fit_event=keep_broker_properties,
    restore=_restore,
    system="eventhubs",
    open_site=_site,
)
