"""Finds unreachable routes, messages without a route, and harmful actions."""

from collections.abc import Iterator

from shared.review import checks
from shared.review.findings import Finding
from shared.review.known_properties import Facts, key_of, satisfied, unsatisfied
from shared.review.network import Network
from shared.rules import parse_action, parse_filter
from shared.rules.syntax import And, NewId, Or, Predicate, Scope, Set
from shared.tasks.models import TaskFile

_MOST_ALTERNATIVES = 24
_MESSAGE_ID = (Scope.SYSTEM, "messageid")


def findings(network: Network) -> Iterator[Finding]:
    """Yield the findings on the routes of each task."""
    for task in network.tasks:
        yield from _ways_out(network, task)
        for index, route in enumerate(task.routes):
            if route.action is not None and _gives_random_id(route.action):
                place = network.place(task, f"routes[{index}].action")
                yield Finding(checks.RANDOM_ID, place, "sets sys.MessageId to newid()")


def _ways_out(network: Network, task: TaskFile) -> Iterator[Finding]:
    """Follow all messages along the routes, by the known facts about their properties."""
    remaining = [Facts()]
    earlier: list[tuple[int, Predicate]] = []
    for index, route in enumerate(task.routes):
        place = network.place(task, f"routes[{index}]")
        if not remaining:
            labels = " and ".join(network.label(target) for target in route.targets)
            yield Finding(checks.UNREACHABLE_ROUTE, place, f"{labels} gets no messages")
            continue
        if route.when is None:
            remaining = []
            continue
        condition = parse_filter(route.when).condition
        hiding = next((number for number, each in earlier if _implies(condition, each)), None)
        if hiding is not None:
            seen = f"routes[{hiding}] takes every message that satisfies {route.when}"
            yield Finding(checks.UNREACHABLE_ROUTE, place, seen)
        elif not any(satisfied(condition, facts) for facts in remaining):
            yield Finding(
                checks.UNREACHABLE_ROUTE, f"{place}.when", f"no message that reaches this route satisfies {route.when}"
            )
        earlier.append((index, condition))
        left = [each for facts in remaining for each in unsatisfied(condition, facts)]
        remaining = left if len(left) <= _MOST_ALTERNATIVES else [Facts()]
    if remaining:
        seen = "every route has a condition, and a message that satisfies none is dropped"
        yield Finding(checks.UNROUTED_MESSAGES, network.place(task, "routes"), seen)


def _implies(condition: Predicate, earlier: Predicate) -> bool:
    """Return whether every message that satisfies *condition* certainly satisfies *earlier* too."""
    if condition == earlier:
        return True
    if isinstance(condition, And):
        return any(_implies(operand, earlier) for operand in condition.operands)
    return isinstance(earlier, Or) and any(_implies(condition, operand) for operand in earlier.operands)


def _gives_random_id(text: str) -> bool:
    return any(
        isinstance(statement, Set)
        and key_of(statement.property) == _MESSAGE_ID
        and isinstance(statement.expression, NewId)
        for statement in parse_action(text).statements
    )
