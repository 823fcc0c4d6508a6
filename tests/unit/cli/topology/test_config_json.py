"""What a Config.json can hold of a namespace, and what is reported instead."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import CorrelationRuleFilter, RuleProperties

from busway_broker.config_file import load_config
from cli.topology.config_json import document_of, namespace_in, not_in_a_file
from cli.topology.live import _rule, setting_of
from cli.topology.model import NEW_RULE, Entity, Kind, Name, Namespace, Setting, SubscriptionRule, pascal
from shared.amqp.values import string
from shared.rules import CorrelationFilter

SUBSCRIPTION = Name(Kind.SUBSCRIPTION, ("t", "s"))


def read_again(folder: Path, entity: Entity) -> Entity:
    """Return *entity* as a file has it; a subscription is one of a topic."""
    parents = [] if entity.name.parent is None else [Entity(entity.name.parent)]
    file = folder / "west.json"
    file.write_text(document_of(Namespace([*parents, entity])), encoding="utf-8")
    [read] = load_config([file])
    found = namespace_in(read).find(entity.name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        ("x", None),
        (None, None),  # an empty text, as the SDK reads it
        (True, None),
        (7, None),
        (2**40, None),
        (0.5, None),
        (datetime(2026, 1, 1, tzinfo=UTC), "compares p with a timestamp"),
        (timedelta(minutes=5), "compares p with a timespan"),
    ],
)
def test_typed_values_of_correlation_filters_are_kept_or_reported(
    tmp_path: Path, value: Any, reported: str | None
) -> None:
    properties = RuleProperties(
        "r", filter=CorrelationRuleFilter(properties={"p": value}), action=None, created_at_utc=None
    )
    rule = _rule(properties)
    assert value is not None or rule.filter == CorrelationFilter(properties={"p": string("")})
    subscription = Entity(SUBSCRIPTION, {}, (rule,))
    reports = not_in_a_file(Namespace([subscription]))
    assert [report.partition("rule r ")[2] for report in reports] == ([] if reported is None else [reported])
    # What is not reported selects the same messages.
    assert (read_again(tmp_path, subscription).rules == (rule,)) == (reported is None)


def test_a_subscription_without_rules_selects_nothing_and_a_new_one_everything(tmp_path: Path) -> None:
    for rules, then in (((), (SubscriptionRule("$Default", "1 = 0"),)), ((NEW_RULE,), (NEW_RULE,))):
        subscription = Entity(SUBSCRIPTION, {}, rules)
        assert read_again(tmp_path, subscription).rules == then
        assert len(not_in_a_file(Namespace([subscription]))) == (not rules)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("auto_delete_on_idle", timedelta(hours=1)),  # SS25: the local broker deletes the entity as well
        ("user_metadata", "busway: orders"),
        ("enable_batched_operations", False),
        ("enable_express", True),
        ("default_message_time_to_live", timedelta(days=4000)),
    ],
)
def test_settings_that_only_the_local_broker_has_are_kept_except_for_the_emulators(
    tmp_path: Path, setting: str, value: Setting
) -> None:
    read = setting_of(setting, value)
    queue = Entity(Name(Kind.QUEUE, ("q",)), {setting: read})
    assert read_again(tmp_path, queue).settings[setting] == value
    if setting != "default_message_time_to_live":
        assert pascal(setting) not in document_of(Namespace([queue]), for_emulator=True)
