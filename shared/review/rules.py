"""Checks the rules of sources and the filters of editors for those that select nothing or the wrong messages."""

from collections.abc import Iterator

from shared.amqp.values import Value
from shared.editors.filter import FilterStep
from shared.editors.properties import PropertiesStep
from shared.review.checks import Checks, Finding
from shared.review.known_properties import Facts, Key, assigned, key_of, satisfied
from shared.review.network import Network, mark_keys
from shared.rules import (
    Action,
    CorrelationFilter,
    Filter,
    SqlFilter,
    TrueFilter,
    parse_action,
    parse_filter,
    quoted_values,
)
from shared.rules.operators import compare
from shared.rules.syntax import Comparison, In, Literal, Property, Scope
from shared.tasks.heartbeats import source_rule
from shared.tasks.models import TaskFile
from shared.tasks.steps import EditorStep


def findings(network: Network) -> Iterator[Finding]:
    """Yield the findings on the rules of each task, then on properties set and compared with different types."""
    for task in network.tasks:
        yield from _quoted(network, task)
        yield from _source_findings(network, task)
        for index, editor in enumerate(task.editors):
            if isinstance(editor, FilterStep) and not satisfied(parse_filter(editor.rule).condition, Facts()):
                place = network.place(task, f"editors[{index}].filter")
                yield Finding(Checks.FILTER_WITHHOLDS_ALL, place, f"no message satisfies {editor.rule}")
        yield from _deployed(network, task)
    yield from _types(network)


def _quoted(network: Network, task: TaskFile) -> Iterator[Finding]:
    for path, text in (*_conditions(task), *action_texts(task)):
        for name in quoted_values(text):
            literal = "'{}'".format(name.replace("'", "''"))
            seen = f'"{name}" is the property named {name}; as text it is {literal}'
            yield Finding(Checks.DOUBLE_QUOTED_TEXT, network.place(task, path), seen)


def _source_findings(network: Network, task: TaskFile) -> Iterator[Finding]:
    rule = task.source.rule
    if rule is None:
        return
    place = network.place(task, "source.rule.filter")
    if not _selects(task, frozenset()):
        yield Finding(Checks.RULE_NEVER_TRUE, place, f"no message satisfies {rule.filter}")
        return
    own = dict(_constants(rule.action))
    compared = list(_comparisons(parse_filter(rule.filter).condition))
    for key, mark in own.items():
        # A rule that compares the property with another value than the mark expects applications to set it.
        is_mark = all(value == mark for each, value in compared if each == key)
        if is_mark and not _selects(task, frozenset([key])) and not _is_given(network, key):
            seen = f"{rule.filter} is not true of messages without {key[1]}, and nothing sets it before this rule"
            yield Finding(Checks.RULE_NEEDS_ITS_MARK, place, seen)


def _selects(task: TaskFile, absent: frozenset[Key]) -> bool:
    """Return whether the source's rule can be true of a message that lacks the properties *absent*."""
    rule = task.source.rule
    return rule is None or bool(satisfied(parse_filter(rule.filter).condition, Facts().without(absent)))


def _is_given(network: Network, key: Key) -> bool:
    """Return whether a task that sets the property *key* also sends messages without it."""
    setting = (
        task for task in network.tasks if any(key in mark_keys(parse_action(text)) for _, text in action_texts(task))
    )
    return any(_selects(task, frozenset([key])) for task in setting)


def _deployed(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Yield the differences between the rules of the subscription and the declared rule."""
    source = task.source
    subscription = network.subscription(source)
    if subscription is None or source.dead_letter:
        return
    place = network.place(task, "source.subscription")
    rules = subscription.rules
    catch_all = next((rule.name for rule in rules if rule.action is None and _is_catch_all(rule.filter)), None)
    acting = next((rule.name for rule in rules if rule.action is not None), None)
    is_doubled = catch_all is not None and acting is not None
    if is_doubled:
        seen = f"{source.subscription} has {catch_all}, which selects everything, beside {acting} with an action"
        yield Finding(Checks.DEFAULT_BESIDE_ACTION, place, seen)
    if source.rule is None:
        return
    rule = source_rule(task) or source.rule
    action = None if rule.action is None else parse_action(rule.action)
    declared = _as_text(parse_filter(rule.filter), action)
    found = [_as_text(rule.filter, rule.action) for rule in rules]
    if found != [declared] and not (is_doubled and declared in found):
        seen = f"{source.subscription} has {' and '.join(found) or 'no rule'}, the task declares {declared}"
        yield Finding(Checks.RULE_NOT_DEPLOYED, network.place(task, "source.rule"), seen)


def _is_catch_all(rule: Filter) -> bool:
    return isinstance(rule, TrueFilter) or (
        isinstance(rule, SqlFilter) and str(rule.condition).replace(" ", "") == "1=1"
    )


def _as_text(rule: Filter, action: Action | None) -> str:
    """Return the rule in its normal spelling, so that equal rules have equal texts."""
    text = "a correlation filter" if isinstance(rule, CorrelationFilter) else str(rule)
    return text if action is None else f"{text} with {action}"


def _types(network: Network) -> Iterator[Finding]:
    """Yield comparisons of a property with a value of a type that no action sets."""
    given: dict[Key, list[Value]] = {}
    for task in network.tasks:
        for key, value in (pair for _, text in action_texts(task) for pair in _constants(text)):
            given.setdefault(key, []).append(value)
    for key in [
        key for key in given if any(_may_set(editor, key) for task in network.tasks for editor in task.editors)
    ]:
        del given[key]
    for task in network.tasks:
        for path, text in _conditions(task):
            for key, value in _comparisons(parse_filter(text).condition):
                values = given.get(key, [])
                if values and value.payload is not None and all(compare("=", each, value) is None for each in values):
                    seen = f"compares {key[1]} with {Literal(value)}, and actions set it to {Literal(values[0])}"
                    yield Finding(Checks.MARK_OF_ANOTHER_TYPE, network.place(task, path), seen)


def _constants(action: str | None) -> Iterator[tuple[Key, Value]]:
    """Yield the application properties that *action* sets to constants."""
    for key, expression in assigned(action).items():
        if key[0] is Scope.USER and isinstance(expression, Literal) and expression.value.payload is not None:
            yield key, expression.value


def _comparisons(node: object) -> Iterator[tuple[Key, Value]]:
    """Yield each comparison of a property with a constant below *node*."""
    match node:
        case Comparison(Property() as side, _, Literal(value)) | Comparison(Literal(value), _, Property() as side):
            yield key_of(side), value
        case In(Property() as side, items):
            yield from ((key_of(side), item.value) for item in items if isinstance(item, Literal))
        case tuple():
            for part in node:
                yield from _comparisons(part)
        case _:
            for name in getattr(node, "__dataclass_fields__", ()):
                yield from _comparisons(getattr(node, name))


def _conditions(task: TaskFile) -> Iterator[tuple[str, str]]:
    if task.source.rule is not None:
        yield "source.rule.filter", task.source.rule.filter
    for index, editor in enumerate(task.editors):
        if isinstance(editor, FilterStep):
            yield f"editors[{index}].filter", editor.rule
    for index, route in enumerate(task.routes):
        if route.when is not None:
            yield f"routes[{index}].when", route.when


def action_texts(task: TaskFile) -> Iterator[tuple[str, str]]:
    """Yield the actions of a task, each with its path in the file."""
    if task.source.rule is not None and task.source.rule.action is not None:
        yield "source.rule.action", task.source.rule.action
    for index, editor in enumerate(task.editors):
        if isinstance(editor, PropertiesStep) and editor.options.action is not None:
            yield f"editors[{index}].properties.action", editor.options.action
    for index, route in enumerate(task.routes):
        if route.action is not None:
            yield f"routes[{index}].action", route.action


def _may_set(editor: EditorStep, key: Key) -> bool:
    """Return whether *editor* may set an application property to anything except the constant of an action."""
    if isinstance(editor, PropertiesStep):
        return key[1] in {name.lower() for name in (editor.options.rename or {}).values()}
    return key[1] in editor.may_set() or not editor.keeps_properties
