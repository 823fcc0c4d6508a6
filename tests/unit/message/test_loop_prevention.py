import pytest

from shared.amqp.values import Value, string
from shared.message.arrival import Origin
from shared.message.loop_prevention import DEFAULT_MAX_HOPS, LoopGuard, path_before
from tests.messages import message


@pytest.mark.parametrize(
    ("visited", "target", "objection"),
    [
        ([], "east", None),
        (["west"], "east", None),
        (["west"], "west", "site west is on its path west"),
        (["west", "east"], "east", "site east is on its path west;east"),
        (["a", "b"], "east", None),
        (["a", "b", "c"], "east", "it has made 3 hops, the task allows 3"),
        (["West"], "west", None),
    ],
)
def test_loop_prevention_rejects_visited_sites_and_too_many_hops(
    visited: list[str], target: str, objection: str | None
) -> None:
    assert LoopGuard(max_hops=3).objection(visited, target) == objection


def test_a_message_in_a_ring_of_sites_stops_before_the_first_site() -> None:
    guard, path = LoopGuard(), list[str]()
    sites = ["a", "b", "c", "d"]
    for hop in range(20):
        here, there = sites[hop % 4], sites[(hop + 1) % 4]
        if guard.objection(path, there) is not None:
            break
        path.append(here)
    assert path == ["a", "b", "c"]


def test_a_message_visits_at_most_the_default_number_of_sites() -> None:
    guard, path = LoopGuard(), list[str]()
    while guard.objection(path, f"site-{len(path) + 1}") is None:
        path.append(f"site-{len(path)}")
    assert len(path) == DEFAULT_MAX_HOPS


@pytest.mark.parametrize(
    ("named", "sites"), [({}, []), ({"repl-path": string("a;b")}, ["a", "b"]), ({"other": string("repl-path")}, [])]
)
def test_the_path_is_read_before_the_stamp(named: dict[str, Value], sites: list[str]) -> None:
    assert path_before(message(1, named=named, origin=Origin("west", "q"))) == sites
