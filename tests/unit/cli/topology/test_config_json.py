"""What a Config.json can hold of the rules of a namespace, and what is reported instead."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus.management import CorrelationRuleFilter, RuleProperties

from busway_broker.config_file import load_config
from cli.topology.config_json import document_of, namespace_in, not_in_a_file
from cli.topology.live import _rule
from cli.topology.model import Entity, Kind, Name, Namespace


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        ("x", None),
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
    subscription = Entity(Name(Kind.SUBSCRIPTION, ("t", "s")), {}, (rule,))
    namespace = Namespace([Entity(Name(Kind.TOPIC, ("t",))), subscription])
    file = tmp_path / "west.json"
    file.write_text(document_of(namespace), encoding="utf-8")
    [read] = load_config([file])
    found = namespace_in(read).find(subscription.name)
    assert found is not None
    reports = not_in_a_file(namespace)
    assert [report.partition("rule r ")[2] for report in reports] == ([] if reported is None else [reported])
    # What is not reported selects the same messages.
    assert (found.rules == (rule,)) == (reported is None)


def test_idle_time_of_an_entity_is_kept_except_for_the_emulators(tmp_path: Path) -> None:
    """SS25: `busway check` warns of it, and the local broker deletes the entity as well."""
    queue = Entity(Name(Kind.QUEUE, ("q",)), {"auto_delete_on_idle": timedelta(hours=1)})
    file = tmp_path / "west.json"
    file.write_text(document_of(Namespace([queue])), encoding="utf-8")
    [read] = load_config([file])
    found = namespace_in(read).find(queue.name)
    assert found is not None
    assert found.settings["auto_delete_on_idle"] == timedelta(hours=1)
    assert "AutoDeleteOnIdle" not in document_of(Namespace([queue]), for_emulator=True)
