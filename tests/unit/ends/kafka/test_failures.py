"""What is shown of an error of librdkafka: of a broker's answer only the meaning of its code."""

import pytest

from shared.ends.kafka.producer import failure_of


class Answer:
    """An error as librdkafka passes it to a callback, with a text that may be the broker's."""

    def __init__(self, code: int, name: str) -> None:
        self._code, self._name = code, name

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return "4711 to Alice"


@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        (10, "MSG_SIZE_TOO_LARGE", "Broker: Message size too large"),
        (87, "INVALID_RECORD", "Broker: Broker failed to validate record"),
        (-169, "_AUTHENTICATION", "Local: Authentication failure"),
        (-195, "_TRANSPORT", "4711 to Alice"),
    ],
)
def test_of_an_answer_of_a_broker_only_the_meaning_of_its_code_is_kept(code: int, name: str, text: str) -> None:
    assert failure_of(Answer(code, name), 3) == (name, text, 3)
