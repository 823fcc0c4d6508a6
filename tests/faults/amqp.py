"""
An AMQP 1.0 broker as the target (`kind: amqp`): a kill of the host, and a broker that cuts connections.

The broker is the local one, reached without what Service Bus adds to the protocol. What Artemis, ActiveMQ and RabbitMQ
do is in `tests/other_brokers`.
"""

from functools import partial

from busway_broker.faults import Effect, Fault, Operation
from tests.end_to_end.host_process import HostProcess
from tests.faults.cuts import cut_at_each
from tests.faults.kills import SENT_BUT_UNSETTLED, kill_mid_batch
from tests.faults.line import Line, strikes
from tests.faults.parties import drafts
from tests.faults.routes import HUB_TO_AMQP, SESSIONS_TO_AMQP_IN_LANES
from tests.faults.scenario import Scenario

_SENDS = frozenset({Operation.SEND})
# More than may be in flight over one connection before a second one is opened.
_MANY_KEYS = 300
_STOLEN = "amqp:link:stolen"


def _over_two_connections(line: Line, fault: Fault) -> None:
    """Let *fault* strike while batches of many keys use both connections to the target."""
    host = line.host()
    _send_many_keys(line, host, "before")
    line.wait_until_drained()
    assert _connections(line) == 2, f"{line.route}: {_connections(line)} connections to the target, expected 2"
    line.target.add(fault)
    _send_many_keys(line, host, "during")
    line.wait_until_drained()
    assert strikes(line.target) == 1
    line.expect_repeats({name for name in line.names_at_target() if name.startswith("during")})


def _send_many_keys(line: Line, host: HostProcess, prefix: str) -> None:
    """Send four messages of each key while the host is paused, so that it gets full batches of different keys."""
    host.pause()
    for number in range(4):
        line.send(drafts(line.route, f"{prefix}-{number}-", keys=_MANY_KEYS, each=1))
    host.resume()


def _connections(line: Line) -> int:
    return line.broker.inspect("east", lambda _: len(line.broker._server.connections("east")))


AMQP = [
    *(
        Scenario(
            f"one of two connections {name} {at}",
            HUB_TO_AMQP,
            partial(_over_two_connections, fault=Fault(operations=_SENDS, at=at, times=1, **fault)),
            explains="in flight over the connection that ended: sent again",
            repeats=None,
        )
        for name, fault in (
            ("is cut before send", {"effect": Effect.DROP_CONNECTION}),
            ("is cut after send", {"effect": Effect.DROP_CONNECTION, "takes_effect": True}),
            ("closes its link at send", {"effect": Effect.CLOSE_LINK, "condition": _STOLEN}),
        )
        for at in (1, 150, 700)
    ),
    # The simulation has the other moments of a kill: they are of the source.
    Scenario("kill -9 mid-batch", HUB_TO_AMQP, kill_mid_batch, explains=SENT_BUT_UNSETTLED, repeats=True),
    Scenario(
        "target cut at every operation",
        HUB_TO_AMQP,
        partial(cut_at_each, site="east", operations=frozenset(Operation), takes_effect=False),
        explains="accepted beside the message that was cut, without an answer: sent again",
        repeats=None,
        is_short=True,
    ),
    Scenario(
        "acknowledgement of a send lost",
        SESSIONS_TO_AMQP_IN_LANES,
        partial(cut_at_each, site="east", operations=_SENDS, takes_effect=True),
        explains="accepted, but the connection broke before the answer: sent again",
        repeats=True,
    ),
]
