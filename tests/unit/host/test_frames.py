import pytest

from shared.amqp import values
from shared.amqp.codec import encode
from shared.amqp.values import FALSE, NULL, TRUE, Malformed, Value
from shared.azure.receivers import frames


def performative(code: int, *fields: Value) -> bytes:
    return encode(values.described(values.ulong(code), values.list_(fields)))


def transfer(*fields: Value, payload: bytes = b"payload") -> frames.Transfer:
    raw = performative(frames.TRANSFER, *fields) + payload
    return frames.read_transfer(raw, 0, len(raw))


def test_transfer_gives_its_fields_and_the_bytes_after_them() -> None:
    read = transfer(values.uint(3), values.uint(700), values.binary(b"t" * 16), values.uint(0), FALSE, FALSE)
    assert read == frames.Transfer(3, 700, b"t" * 16, more=False, aborted=False, payload=b"payload")


def test_transfer_at_full_width_and_one_with_the_handle_only() -> None:
    fields = (values.uint(0), NULL, NULL, NULL, NULL, TRUE, NULL, NULL, FALSE, TRUE, FALSE)
    assert transfer(*fields) == frames.Transfer(0, None, None, more=True, aborted=True, payload=b"payload")
    assert transfer(values.uint(1)) == frames.Transfer(1, None, None, more=False, aborted=False, payload=b"payload")


def test_transfer_without_a_list_is_malformed() -> None:
    raw = b"\x00\x53\x14\x45"
    with pytest.raises(Malformed):
        frames.read_transfer(raw, 0, len(raw))


def disposition(*fields: Value) -> frames.Disposition | None:
    raw = performative(frames.DISPOSITION, *fields)
    return frames.read_disposition(raw, 0, len(raw))


def state(code: int, *fields: Value) -> Value:
    return values.described(values.ulong(code), values.list_(fields))


def test_disposition_of_a_sender_gives_range_and_outcome() -> None:
    assert disposition(FALSE, values.uint(5), values.uint(9), TRUE, state(frames.ACCEPTED)) == frames.Disposition(
        5, 9, settled=True, outcome=frames.ACCEPTED, condition=None
    )
    assert disposition(FALSE, values.uint(5)) == frames.Disposition(5, 5, settled=False, outcome=None, condition=None)


def test_rejection_names_its_condition() -> None:
    error = state(0x1D, values.symbol("com.microsoft:message-lock-lost"), NULL)
    read = disposition(FALSE, values.uint(5), NULL, TRUE, state(frames.REJECTED, error))
    assert read is not None
    assert read.condition == "com.microsoft:message-lock-lost"
    without = disposition(FALSE, values.uint(5), NULL, TRUE, state(frames.REJECTED))
    assert without is not None
    assert without.condition is None


def test_a_disposition_of_a_receiver_is_ignored() -> None:
    assert disposition(TRUE, values.uint(5)) is None


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (frames.ACCEPTED, b"\x00\x53\x24\x45"),
        (frames.RELEASED, b"\x00\x53\x26\x45"),
        (frames.MODIFIED, b"\x00\x53\x27\x45"),
    ],
)
def test_each_message_gets_a_disposition_without_last_and_without_fields_in_its_state(
    outcome: int, state: bytes
) -> None:
    raw = frames.write_dispositions(1, [3, 4, 9], outcome, settled=False)
    one = b"\x02\x00\x00\x01\x00\x53\x15\xc0\x0d\x05\x41\x70%b\x40\x42" + state
    size = (len(one) - 2 + 4 + 4).to_bytes(4)
    assert raw == b"".join(size + one % number.to_bytes(4) for number in (3, 4, 9))
