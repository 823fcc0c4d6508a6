"""chain and verify-chain: a link is the same at every delivery, and every gap, swap or change is found."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shared.amqp.values import string
from shared.editors.chain import ChainOptions, _sequence_of
from shared.editors.protection.links import WINDOW, Progress
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import Withheld
from tests.chained import (
    WEST,
    arrived,
    carried,
    chainer,
    edit,
    linked,
    order,
    settle,
    store_settings,
    verdict,
    verifier,
)
from tests.keys import jwks, made, settings
from tests.messages import delivered, message


@pytest.fixture
def app(tmp_path: Path) -> dict[str, str]:
    return store_settings(tmp_path / "state.db")


def messages(first: Any, last: int) -> list[Message]:
    return [order(number) for number in range(first, last + 1)]


def encoded(those: Sequence[Message]) -> list[bytes]:
    return [each.encode() for each in those]


def test_a_redelivered_message_gets_the_same_link_on_every_instance(app: dict[str, str]) -> None:
    first = linked(chainer(app), messages(1, 5))
    again = chainer(app)
    assert encoded(linked(again, messages(3, 7))[:3]) == encoded(first[2:])
    assert encoded(linked(chainer(app), messages(1, 7))[:5]) == encoded(first)


def test_a_crash_between_the_links_and_the_send_leaves_no_gap(app: dict[str, str]) -> None:
    """Messages that were linked but not sent get the same links at their redelivery, and later messages follow them."""
    linked(chainer(app), messages(1, 3))
    sent = linked(chainer(app), messages(1, 1)) + linked(chainer(app), messages(2, 5))
    assert carried(verifier(app), arrived(sent)) == ["passes"] * 5


def test_two_instances_that_write_at_once_do_not_fork_the_chain(app: dict[str, str]) -> None:
    one, other = chainer(app), chainer(app)
    links = linked(one, messages(1, 2)) + linked(other, messages(3, 3)) + linked(one, messages(4, 4))
    links += linked(other, messages(5, 6))
    assert carried(verifier(app), arrived(links)) == ["passes"] * 6


def test_a_gap_in_one_sequence_does_not_stop_another(app: dict[str, str]) -> None:
    chain = chainer(app)
    mixed = [order(1, session="a"), order(2, session="b"), order(3, session="a"), order(4, session="b")]
    links = linked(chain, mixed)
    assert carried(verifier(app), arrived(links)) == ["passes"] * 4
    # Two of four are missing, and the other sequence goes on.
    links = linked(chain, [order(number, session="ab"[number % 2]) for number in range(5, 9)])
    assert carried(verifier(app), arrived([links[0], links[3]], 5)) == ["passes", "ChainMissing"]


@pytest.mark.parametrize(
    ("sequence", "name"),
    [
        ("entity", "west/orders"),
        ("partition", "west/orders/3"),
        ("partition_key", "west/orders/customer"),
        ({"property": "Customer"}, "west/orders/c"),
    ],
)
def test_the_sequence_option_decides_the_name_of_the_sequence(app: dict[str, str], sequence: Any, name: str) -> None:
    options = ChainOptions.model_validate({"key": "k", "sequence": sequence, "store": {"setting": "STATE"}})
    content = delivered(1, named={"customer": string("c")}, annotated={"x-opt-partition-key": string("customer")})
    assert _sequence_of(options.sequence)(Message.received(content, Origin("west", "orders", "3"))) == name
    if sequence != "entity":
        bare = message(1, origin=WEST)
        (result,) = edit(chainer(app, sequence=sequence), [bare])
        assert isinstance(result, MessageRejected)
        assert result.reason == "NotChained"


def test_a_message_without_an_identity_is_not_chained(app: dict[str, str]) -> None:
    content = delivered(None, message_id=None, session_id="s")
    (result,) = edit(chainer(app), [Message.received(content, WEST)])
    assert verdict(result) == "NotChained"


def test_a_redelivered_message_with_changed_content_is_not_linked_again(app: dict[str, str]) -> None:
    linked(chainer(app), messages(1, 2))
    same, other = edit(chainer(app), [order(1), order(2, b"another")])
    assert verdict(same) == "passes"
    assert isinstance(other, MessageRejected)
    assert str(other).startswith("ChainedDifferently: was linked as number 2")


def test_each_part_of_a_split_message_gets_its_own_link(app: dict[str, str]) -> None:
    parts = [order(1, b"a"), order(1, b"b")]
    first = linked(chainer(app), parts)
    assert encoded(linked(chainer(app), parts)) == encoded(first)
    assert carried(verifier(app), arrived(first)) == ["passes", "passes"]


def test_missing_reordered_altered_and_inserted_messages_are_reported_with_their_numbers(app: dict[str, str]) -> None:
    links = linked(chainer(app), messages(1, 9))
    altered = links[2].copy()
    altered.body = b"order 4"
    stranger = order(77)
    moved = links[7].copy()
    moved.set_properties({"repl-chain": links[2].application_property("repl-chain")})
    verify = verifier(app)
    assert carried(verify, arrived(links[:2])) == ["passes"] * 2
    results = edit(verify, arrived([altered, stranger, moved, links[5], links[4], links[3]], 3))
    assert [str(result) for result in results] == [
        "ChainAltered: the content is not the one that was linked as number 3 of west/orders/s",
        "ChainInserted: has no link in property repl-chain",
        "ChainAltered: the content is not the one that was linked as number 3 of west/orders/s",
        "ChainMissing: numbers 3 to 5 of west/orders/s are missing before 6",
        "ChainMissing: numbers 3 to 4 of west/orders/s are missing before 5",
        "ChainMissing: number 3 of west/orders/s is missing before 4",
    ]
    results = edit(verify, arrived([links[3], links[2]], 9))
    assert str(results[0]) == "ChainReordered: number 4 of west/orders/s comes before number 3"
    assert verdict(results[1]) == "passes"


def test_the_sequence_continues_when_the_missing_message_arrives(app: dict[str, str]) -> None:
    links = linked(chainer(app), messages(1, 4))
    assert carried(verifier(app), arrived([links[0], links[2], links[3]])) == ["passes", "ChainMissing", "ChainMissing"]
    assert carried(verifier(app), arrived(links[1:], 5)) == ["passes"] * 3


def test_the_sequence_continues_at_the_number_that_an_operator_sets(app: dict[str, str]) -> None:
    links = linked(chainer(app), messages(1, 6))
    assert carried(verifier(app), arrived([links[0], links[3]])) == ["passes", "ChainMissing"]
    decided = {"accept": {"west/orders/s": 4}}
    assert carried(verifier(app, **decided), arrived([links[4], links[3]], 3)) == ["ChainMissing", "passes"]
    assert carried(verifier(app, **decided), arrived([links[4], links[5]], 5)) == ["passes"] * 2
    assert carried(verifier(app), arrived([links[3], links[1]], 7)) == ["passes", "ChainReordered"]


def test_a_new_sequence_must_begin_with_number_1_unless_the_options_allow_any(app: dict[str, str]) -> None:
    links = linked(chainer(app), messages(1, 4))
    assert carried(verifier(app), arrived(links[2:])) == ["ChainMissing"] * 2
    assert carried(verifier(app, begin="any"), arrived(links[2:])) == ["passes"] * 2
    assert carried(verifier(app), arrived(links[2:], 3)) == ["passes"] * 2


def test_a_second_chain_with_the_same_name_is_reported_as_altered(app: dict[str, str], tmp_path: Path) -> None:
    one = linked(chainer(app), messages(1, 3))
    other = linked(chainer({**app, "STATE": f"file:{tmp_path / 'other.db'}"}), messages(11, 13))
    verify = verifier(app)
    assert carried(verify, arrived(one[:2])) == ["passes"] * 2
    results = edit(verify, arrived([other[1], other[2]], 3))
    assert [str(result).partition(":")[0] for result in results] == ["ChainAltered", "ChainAltered"]
    assert "number 2 of west/orders/s came before, with other content" in str(results[0])
    assert "number 3 of west/orders/s was linked to another number 2 than the one that came" in str(results[1])


def test_a_message_cannot_be_moved_to_another_session_partition_key_or_value(app: dict[str, str]) -> None:
    def moved(sequence: Any, before: Message, after: Message) -> str:
        (link,) = linked(chainer(app, sequence=sequence), [before])
        after.set_properties({"repl-chain": link.application_property("repl-chain")})
        (unmoved,) = carried(verifier(app), arrived([link]))
        assert unmoved == "passes"
        return carried(verifier(app), arrived([after]))[0]

    assert moved("session", order(1, b"x"), order(1, b"x", session="other")) == "ChainAltered"
    named = [message(1, body=b"x", named={"Customer": string(each)}) for each in ("a", "b")]
    assert moved({"property": "customer"}, *named) == "ChainAltered"
    keys = [message(1, body=b"x", annotated={"x-opt-partition-key": string(each)}) for each in ("c", "d")]
    assert moved("partition_key", *keys) == "ChainAltered"


def test_a_link_of_another_chain_or_without_a_required_property_is_reported_as_inserted(app: dict[str, str]) -> None:
    (link,) = linked(chainer(app, properties=["sys.SessionId"]), messages(1, 1))
    problem = [
        str(edit(verifier(app, **options), arrived([link]))[0]) for options in ({"chain_of": "north/orders"}, {})
    ]
    assert "ChainInserted: is number 1 of west/orders/s, which is another chain" in problem[0]
    assert "ChainInserted: the link does not cover sys.MessageId" in problem[1]
    of = {"properties": ["sys.SessionId"], "chain_of": "west/orders"}
    assert carried(verifier(app, **of), arrived([link])) == ["passes"]


def test_a_forged_link_is_reported_as_inserted_and_an_unknown_key_is_read_again(app: dict[str, str]) -> None:
    (link,) = linked(chainer(app), messages(1, 1))
    value = link.application_property("repl-chain")
    assert value is not None
    text = value.payload
    assert isinstance(text, str)
    for forged in (text[:-4], text.replace(".", "..", 1), "", text + "=", "e30.e30."):
        altered = link.copy()
        altered.set_properties({"repl-chain": string(forged)})
        (result,) = edit(verifier(app), arrived([altered]))
        assert verdict(result) in {"ChainInserted", "UnknownKey"}, result
    others = {**app, **settings(k=jwks(made("oct", "k2"), made("EC", "k3")))}
    (result,) = edit(verifier(others), arrived([link]))
    assert verdict(result) == "UnknownKey"


def test_a_repeated_message_is_withheld_only_if_the_first_one_was_sent_and_settled(app: dict[str, str]) -> None:
    links = arrived(linked(chainer(app), messages(1, 3)))
    verify = verifier(app, duplicates="withhold")
    assert [verdict(each) for each in edit(verify, links)] == ["passes"] * 3
    # Nothing was carried on: the same delivery comes again, and a copy of it, perhaps of what never got there.
    copies = arrived([links[0], links[1]], 10)
    assert [verdict(each) for each in edit(verify, [*links, *copies])] == ["passes"] * 5
    settle(verify, links)
    again = verifier(app, duplicates="withhold")
    assert [verdict(each) for each in edit(again, links)] == ["passes"] * 3, "the source was not settled"
    results = edit(again, copies)
    assert [verdict(result) for result in results] == ["withheld"] * 2
    assert isinstance(results[0], Withheld)
    assert results[0].reason == "number 1 of west/orders/s was passed on before"
    assert carried(verifier(app), copies) == ["passes"] * 2


def test_messages_that_were_not_sent_do_not_advance_the_sequence(app: dict[str, str]) -> None:
    links = arrived(linked(chainer(app), messages(1, 4)))
    verify = verifier(app)
    edit(verify, links)
    settle(verify, [links[0], links[2]])
    after = verifier(app)
    assert [verdict(each) for each in edit(after, [links[2]])] == ["ChainMissing"], "number 2 has not arrived"
    assert carried(after, links) == ["passes"] * 4


def test_verify_chain_removes_the_link_if_configured(app: dict[str, str]) -> None:
    sent = messages(1, 1)
    (passed,) = linked(verifier(app, remove=True), arrived(linked(chainer(app), sent)))
    assert passed.encode() == sent[0].encode()


def test_only_the_links_of_the_window_are_remembered(app: dict[str, str]) -> None:
    progress = Progress()
    for number in range(1, WINDOW + 50):
        progress.append(f"m{number}", f"h{number}")
    progress.encode(WINDOW)
    assert progress.number_of("m49") is None
    assert progress.number_of("m50") == 50
    assert [progress.hash_at(number) for number in (48, 49, 50, WINDOW + 49, WINDOW + 50)] == [
        None, "h49", "h50", f"h{WINDOW + 49}", None
    ]  # fmt: skip
    many = linked(chainer(app), messages(1, WINDOW + 10))
    assert encoded(linked(chainer(app), messages(1, 3))) == encoded(many[:3]), "a large batch is remembered whole"
