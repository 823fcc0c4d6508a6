import pytest

from shared.amqp import sections
from shared.amqp.codec import encode
from shared.amqp.values import Malformed, Value, described, int_, long, map_, string, symbol, timestamp
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message

ENQUEUED = 1_795_363_902_079
EVENTS = Origin("west", "telemetry", "0")
MESSAGES = Origin("west", "orders")


def datetime_offset(milliseconds: int) -> Value:
    return described(symbol("com.microsoft:datetime-offset"), long(milliseconds * 10_000 + 621_355_968_000_000_000))


def arrival(origin: Origin, **annotations: Value) -> Arrival:
    pairs = [(symbol(name.replace("_", "-")), value) for name, value in annotations.items()]
    section = b"\x00\x53\x72" + encode(map_(pairs))
    return Message.received(section + sections.data(b"x"), origin).arrival


def test_annotations_of_an_old_hub_extension_are_read_like_current_ones() -> None:
    usual = arrival(
        EVENTS,
        x_opt_sequence_number=long(5),
        x_opt_offset=string("4294967296"),
        x_opt_enqueued_time=timestamp(ENQUEUED),
    )
    old = arrival(
        EVENTS,
        x_opt_sequence_number=long(5),
        x_opt_offset=long(4_294_967_296),
        x_opt_enqueued_time=datetime_offset(ENQUEUED),
    )
    assert old == usual
    assert old.enqueued_time == ENQUEUED


def test_a_numeric_offset_is_read_only_from_a_hub() -> None:
    assert arrival(EVENTS, x_opt_offset=int_(7)).offset == "7"
    assert arrival(MESSAGES, x_opt_offset=int_(7)).offset is None


@pytest.mark.parametrize(
    "value",
    [
        string("1"),
        described(symbol("com.microsoft:datetime-offset"), string("1")),
        described(symbol("com.microsoft:timespan"), long(1)),
    ],
)
def test_an_enqueued_time_of_another_type_is_malformed(value: Value) -> None:
    with pytest.raises(Malformed):
        arrival(EVENTS, x_opt_enqueued_time=value)
