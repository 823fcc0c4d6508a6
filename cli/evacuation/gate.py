"""
A gate before the subscriptions of a topic: a copy that is for one of them reaches that one, as it is, and no other.

Only the topic takes messages. So while messages of subscriptions are moved, every rule of the topic's subscriptions at
the target leaves out messages with the property EVACUATED_TO, and each subscription has one more rule for its own. The
rules for all other messages mean the same as before. A file has the original rules until they are restored: not before
the copies are there, because a topic distributes them later than it accepts them (Microsoft's own tests wait for that).
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    ServiceBusAdministrationClient,
    SqlRuleFilter,
    TrueRuleFilter,
)

from cli.evacuation.move import EVACUATED_TO
from cli.evacuation.pairs import SUBSCRIPTIONS
from cli.files import whole_file
from cli.topology.model import CORRELATION, pascal
from shared.ends.service_bus.administration import translating
from shared.errors import ConfigError, Problem
from shared.resend.places import Destination, file_of

DISTRIBUTION_SECONDS = 30.0
"""A topic gives copies to its subscriptions, by their rules, seconds after it has accepted a message."""

_RULE = "busway-evacuation"
_LONGEST = 1024
"""Characters of an expression, a limit of Service Bus."""


class Gate:
    """The gate before the subscriptions of one topic."""

    def __init__(self, topic: Destination, client: ServiceBusAdministrationClient, folder: Path) -> None:
        """Change the rules through *client*; keep the original ones in *folder*."""
        self._topic = topic
        self._client = client
        self._file = folder / f"{file_of(topic)}.rules.json"

    @property
    def is_closed(self) -> bool:
        """Whether a run has closed it, and no run has restored the rules since."""
        return self._file.exists()

    def close(self) -> None:
        """Let each subscription get only its own copies; raises BuswayError, and then nothing was moved."""
        with translating(str(self._topic)):
            names = [subscription.name for subscription in self._client.list_subscriptions(self._topic.entity)]
            rules = {name: list(self._client.list_rules(self._topic.entity, name)) for name in names}
            original = {
                name: {rule.name: _sql(rule, self._topic) for rule in some if rule.name != _RULE}
                for name, some in rules.items()
            }
            if not self.is_closed:  # otherwise an earlier run has kept them
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with whole_file(self._file) as file:
                    file.write(json.dumps(original, indent=1))
            for name, some in rules.items():
                for rule in some:
                    if rule.name != _RULE and not _is_extended(rule) and not isinstance(rule.filter, FalseRuleFilter):
                        kept = original[name][rule.name]
                        rule.filter = SqlRuleFilter(f"({kept['sql']}){_END}", parameters=kept["parameters"] or None)
                        self._client.update_rule(self._topic.entity, name, rule)
                if all(rule.name != _RULE for rule in some):
                    own = f"{self._topic.entity}{SUBSCRIPTIONS}{name}".replace("'", "''")
                    only = SqlRuleFilter(f"[{EVACUATED_TO}] = '{own}'")
                    self._client.create_rule(self._topic.entity, name, _RULE, filter=only)

    def open(self) -> None:
        """Restore the rules, also those of a run that was killed."""
        if not self.is_closed:
            return
        kept: dict[str, dict[str, Any]] = json.loads(self._file.read_text(encoding="utf-8"))
        with translating(str(self._topic)):
            for subscription, rules in kept.items():
                try:
                    existing = list(self._client.list_rules(self._topic.entity, subscription))
                except ResourceNotFoundError:
                    continue
                for rule in existing:
                    before = rules.get(rule.name)
                    if rule.name == _RULE:
                        self._client.delete_rule(self._topic.entity, subscription, _RULE)
                    elif before is not None and _is_extended(rule):
                        rule.filter = SqlRuleFilter(before["sql"], parameters=before["parameters"] or None)
                        if before["kind"] == CorrelationRuleFilter.__name__:
                            rule.filter = CorrelationRuleFilter(**before["correlation"])
                        if before["kind"] == TrueRuleFilter.__name__:
                            rule.filter = TrueRuleFilter()
                        self._client.update_rule(self._topic.entity, subscription, rule)
        self._file.unlink()


_END = f" AND [{EVACUATED_TO}] IS NULL"


def _is_extended(rule: RuleProperties) -> bool:
    return isinstance(rule.filter, SqlRuleFilter) and str(rule.filter.sql_expression).endswith(_END)


def _sql(rule: RuleProperties, topic: Destination) -> dict[str, Any]:
    """Return the filter of a rule as SQL, and what is needed to restore it; raises ConfigError."""
    where, given = f"{topic}: rule {rule.name}", rule.filter
    parameters = getattr(given, "parameters", None) or {}
    if not all(isinstance(parameter, str | int | float | bool) for parameter in parameters.values()):
        raise ConfigError([Problem(where, "has parameters that cannot be kept", "remove them for the evacuation")])
    kept: dict[str, Any] = {"kind": type(given).__name__, "sql": "1=1", "parameters": parameters}
    if isinstance(given, CorrelationRuleFilter):
        kept["correlation"] = {name: getattr(given, name) for name in CORRELATION} | {
            "properties": dict(given.properties or {})
        }
        kept["sql"] = " AND ".join(_conditions(given, where)) or "1=1"
    elif isinstance(given, SqlRuleFilter) and given.sql_expression is not None:
        kept["sql"] = given.sql_expression
    if len(kept["sql"]) + len(_END) + 2 > _LONGEST:
        raise ConfigError([Problem(where, "is too long to be extended", "move its messages to a queue: --to")])
    return kept


def _conditions(given: CorrelationRuleFilter, where: str) -> Iterator[str]:
    for name in CORRELATION:
        value = getattr(given, name)
        if value is not None:
            yield f"sys.{pascal(name)} = {_literal(value, where)}"
    for name, value in (given.properties or {}).items():
        yield f"[{name}] = {_literal(value, where)}"


def _literal(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    hint = "move its messages to a queue: --to"
    raise ConfigError([Problem(where, f"compares with a {type(value).__name__}, which SQL cannot", hint)])
