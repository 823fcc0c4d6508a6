"""Marks that should not be there, rules that should: what Busway makes of them with two sites that copy each other."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from cli.entities import beside
from tests.end_to_end.running_pattern import EXAMPLES, ORDERS, RunningPattern, copied, forgetful, lines, orders, stamps

SITES = ("west", "east")
PATH_OF_OTHERS = "north;south;there;elsewhere"


def without_rules(folder: Path, *, default_beside: bool = False) -> Path:
    """Remove the rules of the replication subscriptions, so that all messages match; or add $Default to them."""
    for path in beside(folder):
        document = json.loads(path.read_text())
        for subscription in document["UserConfig"]["Namespaces"][0]["Topics"][0]["Subscriptions"]:
            if subscription["Name"] == "replication":
                everything = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "1=1"}}
                rules = subscription["Rules"] if default_beside else []
                subscription["Rules"] = [*rules, {"Name": "$Default", "Properties": everything}]
        path.write_text(json.dumps(document))
    return folder


def marked(body: str, **named: Any) -> ServiceBusMessage:
    return ServiceBusMessage(
        body,
        message_id=body,
        session_id="s",
        application_properties={key.replace("_", "-"): value for key, value in named.items()},
    )


def test_a_message_sent_with_a_mark_stays_and_is_reported_if_busway_receives_it(tmp_path: Path) -> None:
    """The rule of the broker is Busway's eye: what it does not select, Busway cannot know of."""
    messages = [
        marked("new"),
        marked("left-over", replication=1),
        marked("as-text", replication="1"),
        marked("been-there", repl_path="east"),
        marked("been-here", repl_path="west"),
        marked("been-elsewhere", repl_path="north"),
        marked("been-all-over", repl_path=PATH_OF_OTHERS),
        marked("no-text", repl_path=7),
    ]
    with RunningPattern(EXAMPLES / "all-active", tmp_path) as pattern:
        pattern.send("west/orders", *messages)
        pattern.wait_until_drained()
        arrived = pattern.take(f"east/{ORDERS}", 3, session_id="s")
        assert list(lines(arrived)) == ["new", "been-here", "been-elsewhere"]
        assert [stamps(message)["repl-path"] for message in arrived] == ["west", "west;west", "north;west"]
        reasons = {line["message_id"]: (line["outcome"], line["reason"]) for line in pattern.journal()}
        assert reasons == {
            "been-there": ("looped", "site east is on its path east"),
            "been-all-over": ("looped", "it has made 4 hops, the task allows 4"),
            "no-text": ("rejected", "MalformedMessage: property repl-path: got a int, expected a string"),
        }
        assert pattern.active("west/orders-rejected") == 1
        assert pattern.active(f"west/{ORDERS}") == len(messages)
        assert pattern.active(f"east/{ORDERS}") == 0
        assert pattern.app.stop() == 0


@pytest.mark.parametrize("default_beside", [False, True], ids=["no-rule", "default-beside-the-rule"])
def test_the_guard_stops_copies_that_the_rule_does_not_stop(default_beside: bool, tmp_path: Path) -> None:
    folder = without_rules(copied(EXAMPLES / "all-active", tmp_path / "config"), default_beside=default_beside)
    copies = 2 if default_beside else 1
    with RunningPattern(folder, tmp_path, changed=forgetful) as pattern:
        pattern.at_once(*(partial(pattern.send, f"{site}/orders", *orders(site, 5)) for site in SITES))
        taking = (partial(pattern.take, f"{site}/{ORDERS}", 5 * (1 + copies), session_id="s") for site in SITES)
        for site, other, arrived in zip(SITES, reversed(SITES), pattern.at_once(*taking), strict=True):
            assert list(lines(arrived, site)) == [f"{site}-{n}" for n in range(5)]
            # $Default and the rule make a copy each; without duplicate detection at the target both are there.
            assert sorted(lines(arrived, other)) == sorted(copies * [f"{other}-{n}" for n in range(5)])
        pattern.wait_until_drained()
        assert [pattern.active(f"{site}/{ORDERS}") for site in SITES] == [0, 0], "nothing grows"
        # Each copy comes to the guard on its way back: the marked one by $Default, the unmarked one by $Default and,
        # once more, by the rule.
        back = [f"orders-{site}-to-{other}" for site, other in zip(SITES, reversed(SITES), strict=True)]
        stopped = {task: sum(each == task for each, _ in pattern.looped()) for task in back}
        assert stopped == dict.fromkeys(back, 5 * (3 if default_beside else 1))
        assert pattern.app.stop() == 0
