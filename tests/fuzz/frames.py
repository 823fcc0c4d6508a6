"""
Damaged conversations with a live broker: `python -m tests.fuzz frames --seconds 60 --seed 1`.

A client says what a good one says over a socket, with some bytes changed, frames left out, repeated or in another
order, and hangs up. The broker answers or closes, logs no error, and serves a good client as before. A case that does
not hold is printed as hexadecimal, to become a test.
"""

import itertools
import logging
import random
import socket
from collections import Counter
from collections.abc import Iterator

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from shared.amqp import dispositions, performatives
from shared.amqp.codec import encode
from shared.amqp.fields import compose_list, number_field, text_field
from shared.amqp.frames import AMQP_HEADER, SASL_HEADER, compose
from shared.amqp.performatives import Attach, Flow
from shared.amqp.sections import data
from shared.amqp.values import NULL, Value, described, list_, map_, string, symbol, ulong
from shared.rules import Rule, parse_action, parse_filter
from tests.fuzz import campaign
from tests.fuzz.amqp import Mutator
from tests.fuzz.editors import damaged
from tests.messages import delivered

_SECONDS = 10.0
_GOOD_EVERY = 200
_RULES = (
    Rule("a", parse_filter("priority > 5 OR note LIKE pattern")),
    Rule("b", parse_filter("EXISTS(sys.To)"), parse_action("SET x = note + 'y'; REMOVE flag; SET sys.Label = 'z'")),
)
_CONFIG = NamespaceConfig(
    name="n",
    queues=(QueueConfig(name="q"), QueueConfig(name="s", requires_session=True), QueueConfig(name="good")),
    topics=(TopicConfig(name="t", subscriptions=(SubscriptionConfig(name="u", rules=_RULES),)),),
    hubs=(HubConfig(name="h"),),
)
_HUB_SOURCE = "h/consumergroups/$default/partitions/0"


def _attach(handle: int, address: str, *, receives: bool, filters: Value = NULL) -> bytes:
    rest = [NULL] * 6
    source = described(ulong(0x28), list_([string(address if receives else "me"), *rest, filters]))
    target = described(ulong(0x29), list_([string("me" if receives else address)]))
    return compose(
        0, performatives.attach(Attach(f"l-{handle}", handle, receives, 0, 1, source, target, 0, None, (), None))
    )


def _transfer(handle: int, number: int, payload: bytes, *, more: bool = False) -> bytes:
    tag = number.to_bytes(16)
    return performatives.transfer(0, handle, number, tag, len(payload), settled=False, more=more) + payload


def _flow(handle: int, credit: int) -> bytes:
    return compose(0, performatives.flow(Flow(1, 2**31, 0, 5000, handle, 0, credit, drain=False, echo=True)))


def _request(operation: str, body: Value) -> bytes:
    named = described(ulong(0x74), map_([(string("operation"), string(operation))]))
    return (
        compose_list(0x73, [text_field("id"), b"\x40", b"\x40", b"\x40", text_field("me")])
        + encode(named)
        + encode(described(ulong(0x77), body))
    )


def conversation(draw: random.Random, payload: bytes) -> list[bytes]:
    """Return the parts of what a good client says, with *payload* as one of its messages."""
    opening = performatives.open_(performatives.Open("me", 65536, 10, 60_000))
    begin = compose_list(performatives.BEGIN, [b"\x40", number_field(0), *[number_field(2**31)] * 2])
    session = map_([(symbol("com.microsoft:session-filter"), NULL)])
    token = _request("put-token", string("SharedAccessSignature sr=x&sig=y&se=1&skn=z"))
    lock = _request("com.microsoft:renew-lock", map_([(string("lock-tokens"), list_([]))]))
    said = [
        [_attach(0, "q", receives=False), _transfer(0, 0, payload), _transfer(0, 1, data(b"x"), more=True)],
        [_attach(1, "q", receives=True), _flow(1, 5)],
        [_attach(2, "t", receives=False), _transfer(2, 2, payload)],
        [_attach(3, "t/Subscriptions/u", receives=True), _flow(3, 10)],
        [_attach(4, "s", receives=True, filters=session), _flow(4, 1)],
        [
            _attach(5, "h", receives=False),
            _transfer(5, 3, payload),
            _attach(6, _HUB_SOURCE, receives=True),
            _flow(6, 9),
        ],
        [
            _attach(7, "q/$management", receives=False),
            _attach(8, "q/$management", receives=True),
            _transfer(7, 4, lock),
        ],
        [_attach(9, "$cbs", receives=False), _attach(10, "$cbs", receives=True), _flow(10, 9), _transfer(9, 5, token)],
        [compose(0, dispositions.disposition(role=True, delivery_id=0, state=performatives.ACCEPTED_STATE))],
        [compose(0, performatives.detach(draw.randrange(4), closed=True))],
    ]
    chosen = draw.sample(said, draw.randrange(1, len(said)))
    start = [AMQP_HEADER.encode(), compose(0, opening), compose(0, begin)]
    if draw.randrange(4) == 0:
        start.insert(0, SASL_HEADER.encode())
    return [*start, *(part for parts in chosen for part in parts)]


class Fuzz:
    """A broker, and a seed."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        """Draw from *seed*."""
        self._address = ("127.0.0.1", broker.port("n"))
        self.draw = random.Random(seed)
        self._messages = Mutator(seed)

    def case(self) -> bytes:
        """Return a damaged conversation."""
        draw = self.draw
        payload = draw.choice((self._messages.next(), damaged(delivered(None, body=b"{}"), draw), delivered(None)))
        parts = conversation(draw, payload)
        for _ in range(draw.choice((0, 1, 1, 2, 3))):
            at = draw.randrange(len(parts))
            match draw.randrange(5):
                case 0:
                    parts[at] = damaged(parts[at], draw) if parts[at] else b""
                case 1:
                    del parts[at : at + 1]
                    parts = parts or [b""]
                case 2:
                    parts[at] *= draw.choice((2, 50))
                case 3:
                    parts.insert(draw.randrange(len(parts)), parts[at])
                case _:
                    # The size stays right, so that the content of the frame is reached.
                    frame = parts[at]
                    made = frame[:8] + damaged(frame[8:], draw)
                    parts[at] = len(made).to_bytes(4) + made[4:] if len(frame) > 8 else made
        return b"".join(parts)

    def answered(self, said: bytes) -> int:
        """Say this and hang up; return the bytes of the answer. The broker has to close, too."""
        received = 0
        with socket.create_connection(self._address, timeout=_SECONDS) as peer:
            try:
                peer.sendall(said)
                peer.shutdown(socket.SHUT_WR)
                while answer := peer.recv(65536):
                    received += len(answer)
            except TimeoutError:
                raise
            except OSError:
                return received  # it has closed
        return received

    def check_good_client(self) -> None:
        """Check that a good client can still send and is answered."""
        opening = performatives.open_(performatives.Open("me", 65536, 10, 60_000))
        begin = compose_list(performatives.BEGIN, [b"\x40", number_field(0), *[number_field(2**31)] * 2])
        said = [compose(0, opening), compose(0, begin), _attach(0, "good", receives=False), _transfer(0, 7, data(b"x"))]
        with socket.create_connection(self._address, timeout=_SECONDS) as peer:
            peer.sendall(AMQP_HEADER.encode() + b"".join(said))
            answer = b""
            accepted = b"\x00\x53\x15"
            while accepted not in answer:
                more = peer.recv(65536)
                assert more, "a good client was closed"
                answer += more


class _Errors(logging.Handler):
    """Keeps what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.found.append(logging.Formatter().format(record))


def run(seed: int, cases: int | None = None, seconds: float | None = None) -> Counter[str]:
    """Try damaged conversations until *cases* or *seconds* are reached; return how many were answered and closed."""
    errors = _Errors()
    logging.getLogger().addHandler(errors)
    try:
        with RunningBroker([_CONFIG]) as broker:
            fuzz = Fuzz(broker, seed)
            verdicts = campaign.run(_cases(fuzz, errors), seed, cases, seconds)
            fuzz.check_good_client()
    finally:
        logging.getLogger().removeHandler(errors)
    return verdicts


def _cases(fuzz: Fuzz, errors: _Errors) -> Iterator[campaign.Case]:
    numbers = itertools.count()

    def check() -> list[str]:
        verdict = "answered" if fuzz.answered(said) > 0 else "closed"
        if next(numbers) % _GOOD_EVERY == 0:
            fuzz.check_good_client()
        assert not errors.found, errors.found[0]
        return [verdict]

    while True:
        said = fuzz.case()
        yield campaign.Case("conversation", [said], check)
