"""What azservicebus and azeventhubs for Go and @azure/service-bus send and read, found by `make conformance`."""

import datetime as dt

import pytest

from broker.tests.client_frames import DETACHED, error_of
from broker.tests.signatures import signature
from broker.tests.unit.peer import opened
from busway_broker import errors
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, Right, SharedAccessKey
from busway_broker.core.administration import Administration
from busway_broker.core.namespace import Namespace
from busway_broker.errors import Refusal
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.terminus import filters_of
from shared.amqp import performatives
from shared.amqp.codec import pairs_of, plain
from shared.amqp.fields import fields_of
from shared.amqp.values import NULL, Value, described, map_, string, symbol, ulong
from shared.clock import ManualClock

CLOCK = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
KEY = SharedAccessKey(name="owner", key="secret")
SESSION_FILTER = "com.microsoft:session-filter"


def claims(*, accepts_entra_tokens: bool = False) -> Claims:
    queues = (QueueConfig(name="q"), QueueConfig(name="region/q"))
    config = NamespaceConfig(
        name="n", queues=queues, shared_access_keys=(KEY,), accepts_entra_tokens=accepts_entra_tokens
    )
    return Claims(Namespace(config, CLOCK))


def test_a_token_for_the_management_of_a_queue_is_one_for_the_queue() -> None:
    put = claims()
    put.put(signature("sb://localhost/q/$management", KEY), "sb://localhost/q/$management")
    put.check("q", frozenset((Right.SEND,)))
    with pytest.raises(Refusal):
        put.check("region/q", frozenset((Right.SEND,)))


@pytest.mark.parametrize(
    "audience", ["sb://h/q", "sb://h/Q/$management", "sb://h/region/q/$deadletterqueue", "sb://h", "sb://h/$management"]
)
def test_a_token_for_what_exists_is_accepted(audience: str) -> None:
    claims().check_exists(audience)


@pytest.mark.parametrize("audience", ["sb://h/unknown", "sb://h/region", "sb://h/qq/$management"])
def test_a_token_for_an_unknown_entity_is_answered_with_not_found(audience: str) -> None:
    with pytest.raises(Refusal) as caught:
        claims().check_exists(audience)
    assert caught.value.condition == errors.NOT_FOUND


def test_tokens_of_another_kind_are_accepted_where_the_namespace_says_so() -> None:
    with pytest.raises(Refusal):
        claims().put("a.b.c", "sb://h/q")
    trusting = claims(accepts_entra_tokens=True)
    trusting.put("a.b.c", "sb://h/q")
    trusting.check("q", frozenset((Right.MANAGE,)))
    with pytest.raises(Refusal):
        claims(accepts_entra_tokens=True).put("", "sb://h/q")


@pytest.mark.parametrize("name", [string("a"), NULL])
@pytest.mark.parametrize("is_described", [True, False])
def test_the_name_of_a_session_is_returned_as_it_was_asked_for(name: Value, is_described: bool) -> None:
    peer = opened((1, False, "s"))
    body = b"\x00\x53\x73\xc0\x0e\x0b" + b"\x40" * 10 + b"\xa1\x01a" + b"\x00\x53\x75\xa0\x01x"
    peer.say(peer.transfer(1, 0, body))
    asked = described(ulong(0x137000000C), name) if is_described else name
    heard = peer.say(peer.attach(2, receives=True, address="s", filters=map_([(symbol(SESSION_FILTER), asked)])))
    ((_, _, fields, _),) = [each for each in heard if each[1] == performatives.ATTACH]
    pairs = fields_of(fields[5], "source")[1].value(7)
    assert pairs is not None
    assert plain(filters_of(fields[5])[SESSION_FILTER]) == "a"
    (_, answered), *_ = pairs_of(pairs)
    assert (answered.kind == "described") is is_described


def test_a_hub_that_is_deleted_ends_its_links_and_a_new_one_starts_again() -> None:
    peer = opened((1, False, "h"))
    peer.say(peer.transfer(1, 0, b"\x00\x53\x75\xa0\x01x"))
    peer.say(peer.attach(2, receives=True, address="h/ConsumerGroups/$Default/Partitions/0"))
    administration = Administration(peer.namespace)
    administration.delete_hub("H")
    heard = peer.heard()
    assert [code for _, code, *_ in heard] == [DETACHED, DETACHED]
    assert error_of(heard[:1], DETACHED) == errors.NOT_FOUND
    with pytest.raises(Refusal):
        administration.delete_hub("h")
    administration.create_hub(HubConfig(name="h", partition_count=2))
    assert [partition.next_sequence_number for partition in peer.namespace.hub("h").partitions] == [0, 0]
    with pytest.raises(Refusal):
        administration.create_hub(HubConfig(name="h"))
