"""
The rule language of Service Bus: filters that select messages, actions that change their properties.

`parse_filter` and `parse_action` read it, `RuleSet` selects the copies of one message for a subscription.
"""

from shared.rules.errors import RuleEvaluationError, RuleSyntaxError
from shared.rules.lexer import quoted_values
from shared.rules.properties import SYSTEM_PROPERTIES, MutableProperties, Properties, SystemProperty
from shared.rules.rule import (
    Action,
    CorrelationFilter,
    FalseFilter,
    Filter,
    SqlFilter,
    TrueFilter,
    parse_action,
    parse_filter,
    unknown_system_properties,
)
from shared.rules.ruleset import Rule, RuleSet, Selection

__all__ = [
    "SYSTEM_PROPERTIES",
    "Action",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "MutableProperties",
    "Properties",
    "Rule",
    "RuleEvaluationError",
    "RuleSet",
    "RuleSyntaxError",
    "Selection",
    "SqlFilter",
    "SystemProperty",
    "TrueFilter",
    "parse_action",
    "parse_filter",
    "quoted_values",
    "unknown_system_properties",
]
