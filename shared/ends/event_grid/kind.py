"""The record of Azure Event Grid."""

from collections.abc import Iterator
from functools import partial

from shared.ends.event_grid.endpoint import SETTING_FORM, event_grid_endpoint_of
from shared.ends.kind import Holds, Kind, OutputPlace, SourceOptions, TaskFault, Texts
from shared.message.text_messages import MOST_EVENT_BYTES, check_event
from shared.protocols import Output


def _output(place: OutputPlace) -> Output:
    from shared.ends.event_grid.output import EventGridOutput

    return EventGridOutput(place.site, partial(event_grid_endpoint_of, place.setting, place.settings))


def _faults(source: SourceOptions, needs_order: bool) -> Iterator[TaskFault]:
    if source.sessions or source.dead_letter or source.form == "envelope":
        text = "has sessions, dead_letter or from, expected none of them for a webhook"
        hint = "envelopes are always opened; Event Grid keeps its dead letters in a blob"
        yield TaskFault("source", text, hint)
    elif needs_order:
        yield TaskFault("editors", "has editors that need an order, and Event Grid keeps none")


KIND = Kind(
    name="event-grid",
    rank=6,
    noun="Event Grid",
    holds=Holds.NOTHING,
    setting=SETTING_FORM,
    output=_output,
    sources=frozenset(("webhook",)),
    targets=frozenset(("topic",)),
    has_trigger=False,
    restore=lambda _: check_event,
    texts=Texts(MOST_EVENT_BYTES, "each request of Event Grid is answered by itself", _faults, is_event=True),
    unreached=(
        "is a topic of Event Grid, which this command does not reach",
        "receive behind its webhook, or publish with az eventgrid",
    ),
    system="eventgrid",
)
