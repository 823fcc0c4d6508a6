"""Keys in the configuration, and what a grant covers."""

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.tests.signatures import signature
from busway_broker.access import Access, Grant, path_of_resource
from busway_broker.config import NamespaceConfig, Right, SharedAccessKey
from busway_broker.config_file import load_config
from busway_broker.core.namespace import Namespace
from busway_broker.errors import AUTH_FAILED, Refusal
from shared.clock import ManualClock
from shared.errors import ConfigError

CLOCK = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
SENDING = frozenset((Right.SEND,))
OWNER = SharedAccessKey(name="owner", key="k", rights=frozenset((Right.MANAGE,)))


def write_config(tmp_path: Path, **namespace: object) -> Path:
    path = tmp_path / "Config.json"
    path.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "n", **namespace}]}}))
    return path


def test_keys_are_read_with_their_rights(tmp_path: Path) -> None:
    keys = [{"Name": "all", "Key": "k"}, {"Name": "some", "Key": "l", "Rights": ["Send", "Listen"]}]
    (config,) = load_config([write_config(tmp_path, SharedAccessKeys=keys)])
    assert [(key.name, key.key) for key in config.shared_access_keys] == [("all", "k"), ("some", "l")]
    assert [key.rights for key in config.shared_access_keys] == [frozenset(Right), SENDING | {Right.LISTEN}]
    assert "'k'" not in repr(config)


def test_mistakes_in_keys_and_status_are_all_named(tmp_path: Path) -> None:
    keys = [{"Name": "a"}, {"Name": "A", "Key": "k", "Rights": ["Write"]}, {"Name": "b", "Key": "k", "Rights": "Send"}]
    queues = [{"Name": "q", "Properties": {"Status": "Asleep", "MaxSizeInMegabytes": 0}}]
    with pytest.raises(ConfigError) as caught:
        load_config([write_config(tmp_path, SharedAccessKeys=keys, Queues=queues)])
    text = str(caught.value)
    assert all(each in text for each in ("Key: is missing", "'Write'", "two keys named A", "a list of texts"))
    assert all(each in text for each in ("'Asleep'", "MaxSizeInMegabytes: is 0"))


@pytest.mark.parametrize(
    ("resource", "path"),
    [
        ("sb://localhost:5672/Orders/", "orders"),
        ("https://localhost/t/Subscriptions/s?api-version=2021-05", "t/subscriptions/s"),
        ("amqps://localhost", ""),
        ("orders", "orders"),
        ("", ""),
    ],
)
def test_a_resource_is_known_by_its_path(resource: str, path: str) -> None:
    assert path_of_resource(resource) == path


@pytest.mark.parametrize(
    ("path", "covered"),
    [("orders", True), ("orders/$management", True), ("orders2", False), ("order", False), ("", False)],
)
def test_a_grant_reaches_below_its_path_and_no_further(path: str, covered: bool) -> None:
    assert Grant("orders", SENDING).covers(path, SENDING, 0) is covered


def test_a_grant_ends_and_has_its_rights_only() -> None:
    grant = Grant("", SENDING, 100)
    assert grant.covers("any", SENDING, 99)
    assert not grant.covers("any", SENDING, 100)
    assert not grant.covers("any", frozenset((Right.MANAGE,)), 99)


def test_a_namespace_without_keys_asks_nobody() -> None:
    assert Access.of(Namespace(NamespaceConfig(name="n"), CLOCK)) is None


def test_a_key_that_may_manage_may_do_everything() -> None:
    access = Access.of(Namespace(NamespaceConfig(name="n", shared_access_keys=(OWNER,)), CLOCK))
    assert access is not None
    assert access.by_key("OWNER", "k").rights == frozenset(Right)
    with pytest.raises(Refusal) as caught:
        access.by_key("owner", "\u00e9")
    assert caught.value.condition == AUTH_FAILED
    assert "\u00e9" not in str(caught.value)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda: signature("sb://localhost/orders", OWNER, seconds=-5), "ExpiredToken"),
        (lambda: signature("sb://localhost/other", OWNER), "InvalidAudience"),
        (lambda: signature("sb://localhost/orders", OWNER, secret="wrong"), "InvalidSignature"),
        (lambda: "SharedAccessSignature sr=x&sig=y&se=99999999999", "MalformedToken"),
        (lambda: "SharedAccessSignature sr=x&sig=y&se=99999999999&se=never&skn=owner", "MalformedToken"),
        (lambda: "SharedAccessSignature sr=x&sig=%ff%00\u00e9&se=99999999999&skn=owner", "MalformedToken"),
        (lambda: "SharedAccessSignature sr=x&sig=%ff%00%c3%a9&se=99999999999&skn=owner", "InvalidSignature"),
        (lambda: "a.web.token", "InvalidToken"),
    ],
)
def test_a_bad_token_is_refused_with_the_reason(token: Callable[[], str], reason: str) -> None:
    access = Access.of(Namespace(NamespaceConfig(name="n", shared_access_keys=(OWNER,)), CLOCK))
    assert access is not None
    with pytest.raises(Refusal, match=f"{reason}: ") as caught:
        access.by_signature(token(), "sb://localhost/orders")
    assert caught.value.condition == AUTH_FAILED
