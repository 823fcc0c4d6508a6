"""Plain copy, all-active with two and three sites, ring, hub and spoke: who gets what, once, and what stops."""

from functools import partial
from itertools import product
from pathlib import Path

import pytest

from busway_broker.faults import Effect, Fault, Operation
from tests.end_to_end.running_pattern import EXAMPLES, ORDERS, RunningPattern, forgetful, lines, orders, stamps

pytestmark = pytest.mark.long

EACH = 8
SESSIONS = ("s", "t")

# Where a message of each site has been when it arrives, by pattern: the sites that it left.
PATHS = {
    "all-active": {"west": {"east": "west"}, "east": {"west": "east"}},
    "all-active-mesh": {
        "west": {"east": "west", "north": "west"},
        "east": {"west": "east", "north": "east"},
        "north": {"west": "north", "east": "north"},
    },
    "ring": {
        "west": {"east": "west", "north": "west;east"},
        "east": {"north": "east", "west": "east;north"},
        "north": {"west": "north", "east": "north;west"},
    },
    "hub-and-spoke": {
        "west": {"hub": "west", "east": "west;hub"},
        "east": {"hub": "east", "west": "east;hub"},
        "hub": {"west": "hub", "east": "hub"},
    },
}
# Which tasks the guard stops every message of a site at; where rules do, none.
STOPS = {
    "all-active": {},
    "all-active-mesh": {},
    "ring": {"west": "orders-north-to-west", "east": "orders-west-to-east", "north": "orders-east-to-north"},
    "hub-and-spoke": {"west": "orders-hub-to-west", "east": "orders-hub-to-east"},
}


def test_a_plain_copy_leaves_the_original_and_keeps_the_order_of_a_session(tmp_path: Path) -> None:
    with RunningPattern(EXAMPLES / "plain-copy", tmp_path) as pattern:
        pattern.send("west/orders", *(order for session in SESSIONS for order in orders(session, EACH, session)))
        originals, copies = (
            {session: partial(pattern.take, f"{site}/{path}", EACH, session_id=session) for session in SESSIONS}
            for site, path in (("west", ORDERS), ("east", "orders"))
        )
        taken = pattern.at_once(*originals.values(), *copies.values())
        expected = [[f"{session}-{n}" for n in range(EACH)] for session in SESSIONS]
        assert [list(lines(messages)) for messages in taken] == expected + expected
        assert [[message.message_id for message in messages] for messages in taken[2:]] == expected
        assert {stamps(message)["repl-path"] for messages in taken[2:] for message in messages} == {"west"}
        pattern.wait_until_drained()
        assert (pattern.active(f"west/{ORDERS}"), pattern.active("east/orders")) == (0, 0)
        assert pattern.journal() == []
        assert pattern.app.stop() == 0


@pytest.mark.parametrize("name", PATHS)
def test_every_site_gets_every_message_once_in_order_and_copies_stop(name: str, tmp_path: Path) -> None:
    paths = PATHS[name]
    with RunningPattern(EXAMPLES / name, tmp_path, changed=forgetful) as pattern:
        # All sites send at the same time, to the same sessions.
        sent = {
            site: [order for session in SESSIONS for order in orders(f"{site}-{session}", EACH, session)]
            for site in paths
        }
        pattern.at_once(*(partial(pattern.send, f"{site}/orders", *messages) for site, messages in sent.items()))
        places = list(product(paths, SESSIONS))
        taking = [
            partial(pattern.take, f"{site}/{ORDERS}", EACH * len(paths), session_id=each) for site, each in places
        ]
        for (site, session), arrived in zip(places, pattern.at_once(*taking), strict=True):
            for origin in paths:
                of_origin = list(lines(arrived, f"{origin}-{session}-"))
                assert of_origin == [f"{origin}-{session}-{n}" for n in range(EACH)], (site, origin)
                visited = {stamps(message).get("repl-path") for message in arrived if str(message) in of_origin}
                assert visited == {paths[origin].get(site)}, (site, origin)
        # Nothing is on its way any more, so nothing that comes later can be more than what has come.
        pattern.wait_until_drained()
        assert {site: pattern.active(f"{site}/{ORDERS}") for site in paths} == dict.fromkeys(paths, 0)
        assert {site: pattern.active(f"{site}/orders-rejected") for site in paths} == dict.fromkeys(paths, 0)
        expected = [
            (task, f"{site}-{session}-{n}")
            for site, task in STOPS[name].items()
            for session in SESSIONS
            for n in range(EACH)
        ]
        assert sorted(pattern.looped()) == sorted(expected)
        assert pattern.app.stop() == 0


def test_a_message_sent_to_both_sites_arrives_once_and_in_an_outage_only_the_copies_wait(tmp_path: Path) -> None:
    sites = ("west", "east")
    with RunningPattern(EXAMPLES / "all-active", tmp_path, changed=lambda namespace: namespace) as pattern:
        pattern.at_once(*(partial(pattern.send, f"{site}/orders", *orders("both", EACH)) for site in sites))
        pattern.wait_until_drained()
        taking = (partial(pattern.take, f"{site}/{ORDERS}", EACH, session_id="s") for site in sites)
        expected = [f"both-{n}" for n in range(EACH)]
        assert [list(lines(messages)) for messages in pattern.at_once(*taking)] == [expected, expected]

        away = pattern.broker.faults("east")
        away.add(Fault(effect=Effect.DROP_CONNECTION, entity="orders", operations=frozenset({Operation.SEND})))
        pattern.send("west/orders", *orders("west", EACH))
        pattern.app.wait_for(lambda: away.plain()[0]["struck"])
        assert pattern.active("west/orders/Subscriptions/replication") == EACH
        expected = [f"west-{n}" for n in range(EACH)]
        assert list(lines(pattern.take(f"west/{ORDERS}", EACH, session_id="s"))) == expected
        assert pattern.active(f"east/{ORDERS}") == 0
        away.clear()
        assert list(lines(pattern.take(f"east/{ORDERS}", EACH, session_id="s"))) == expected
        pattern.wait_until_drained()
        assert [pattern.active(f"{site}/{ORDERS}") for site in sites] == [0, 0]
        assert pattern.app.stop() == 0
