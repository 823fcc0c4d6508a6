"""The record of Kafka."""

from shared.ends.kafka.endpoint import SETTING_FORM, kafka_endpoint_of
from shared.ends.kind import Holds, Kind, OutputPlace
from shared.protocols import Output


def _output(place: OutputPlace) -> Output:
    from shared.ends.kafka.output import KafkaOutput

    return KafkaOutput(place.site, kafka_endpoint_of(place.setting, place.settings), place.headers)


KIND = Kind(
    name="kafka",
    rank=4,
    noun="a topic of Kafka",
    holds=Holds.RECORDS,
    setting=SETTING_FORM,
    output=_output,
    targets=frozenset(("topic",)),
    source_hint="forward the topic to an event hub with `busway forward`",
    has_headers=True,
    unreached=("is of kind kafka", "use a Kafka client"),
    system="kafka",
)
