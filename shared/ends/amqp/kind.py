"""The record of other AMQP 1.0 brokers."""

from shared.ends.amqp.endpoint import SETTING_FORM, amqp_endpoint
from shared.ends.kind import Holds, Kind, OutputPlace
from shared.message.mapping import make_durable
from shared.protocols import Output


def _output(place: OutputPlace) -> Output:
    from shared.ends.amqp.output import AmqpOutput

    return AmqpOutput(place.site, amqp_endpoint(place.settings.get(place.setting, "")), place.capabilities)


KIND = Kind(
    name="amqp",
    rank=3,
    noun="a queue or topic of a broker",
    holds=Holds.MESSAGES,
    setting=SETTING_FORM,
    output=_output,
    targets=frozenset(("queue", "topic", "address")),
    has_broker_replacement=True,
    fit_message=make_durable,
    fit_event=make_durable,
    sends_at_once=True,
    system="amqp",
)
