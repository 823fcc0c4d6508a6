"""
Evaluates rules on messages with partly known properties.

`outcomes` follows the three-valued logic of conditions (`shared.rules.conditions`) and records what each outcome
implies for the properties, so that a later condition on the same message is judged by it: a message that has passed
`replication IS NULL` and `SET replication = 1` does not pass the first again. Comparisons of order and LIKE on unknown
properties have every outcome.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import lru_cache
from typing import assert_never

from shared.amqp.values import NULL, Value
from shared.rules import SYSTEM_PROPERTIES, Action, RuleEvaluationError, parse_action
from shared.rules.conditions import compile_condition
from shared.rules.conversion import converted
from shared.rules.expressions import compile_expression
from shared.rules.syntax import (
    And,
    Comparison,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    NewId,
    Not,
    Or,
    Parameter,
    Predicate,
    Property,
    PropertyNamed,
    Scope,
    Set,
    properties_in,
)
from shared.rules.value_types import type_of


class Unknown(Enum):
    """The knowledge about a property with an unknown value."""

    ANYTHING = auto()
    SOMETHING = auto()  # there, and not null
    NOTHING = auto()  # absent or null
    ABSENT = auto()


type Knowledge = Value | Unknown
type Key = tuple[Scope, str]
type Outcomes = "list[tuple[bool | None, Facts]]"

# Limits the work for long conditions on many properties.
_MOST_OUTCOMES = 24
_MOST_ITEMS = 4
# Of longer texts, only the existence is recorded.
_LONGEST_TEXT = 4096


@dataclass(frozen=True)
class Facts:
    """The known facts about a message's properties; `others` applies to unlisted application properties."""

    known: Mapping[Key, Knowledge] = field(default_factory=dict)
    others: Unknown = Unknown.ANYTHING

    def of(self, key: Key) -> Knowledge:
        """Return the knowledge about a property; an unlisted system property can have any value."""
        return self.known.get(key, self.others if key[0] is Scope.USER else Unknown.ANYTHING)

    def with_(self, key: Key, knowledge: Knowledge) -> "Facts":
        """Return these facts with one added or replaced."""
        return Facts({**self.known, key: knowledge}, self.others)

    def without(self, keys: frozenset[Key]) -> "Facts":
        """Return these facts with *keys* absent from the message."""
        return Facts({**self.known, **dict.fromkeys(keys, Unknown.ABSENT)}, self.others)

    # `shared.rules.Properties`, for conditions whose properties all have known values

    def system(self, name: str) -> Value | None:
        """Return the value of a system property if known."""
        return self._value((Scope.SYSTEM, name.lower()))

    def user(self, name: str) -> Value | None:
        """Return the value of an application property if known."""
        return self._value((Scope.USER, name))

    def _value(self, key: Key) -> Value | None:
        knowledge = self.of(key)
        return knowledge if isinstance(knowledge, Value) else None


def key_of(node: Property) -> Key:
    """Return the key of a property, which does not depend on its spelling."""
    name = node.name.lower()
    if node.scope is Scope.SYSTEM and name in SYSTEM_PROPERTIES:
        return node.scope, SYSTEM_PROPERTIES[name].name.lower()
    return node.scope, name


MESSAGE_ID: Key = (Scope.SYSTEM, "messageid")
SESSION_ID: Key = (Scope.SYSTEM, "sessionid")
PARTITION_KEY: Key = (Scope.SYSTEM, "partitionkey")


def assigned(action: str | None) -> dict[Key, Expression]:
    """Return the properties that an action sets, with what it sets each of them to last."""
    statements = () if action is None else parse_action(action).statements
    return {key_of(each.property): each.expression for each in statements if isinstance(each, Set)}


def outcomes(node: Predicate, facts: Facts) -> Outcomes:
    """Return each truth value that *node* can have for messages with *facts*, with the facts in that case."""
    match node:
        case Not(operand):
            return [(None if truth is None else not truth, then) for truth, then in outcomes(operand, facts)]
        case And(operands):
            return _chained(operands, facts, final=False)
        case Or(operands):
            return _chained(operands, facts, final=True)
        case IsNull(property_, is_negated):
            key = key_of(property_)
            return [(is_null is not is_negated, then) for is_null, then in _nullness(key, facts)]
        case Exists(property_):
            return _existence(key_of(property_), facts)
        case Comparison() | In() | Like():
            return _comparison(node, facts)
        case _:
            assert_never(node)


def satisfied(node: Predicate, facts: Facts) -> list[Facts]:
    """Return the facts about messages that satisfy *node*, one entry for each way to satisfy it."""
    return [then for truth, then in outcomes(node, facts) if truth is True]


def unsatisfied(node: Predicate, facts: Facts) -> list[Facts]:
    """Return the facts about messages that do not satisfy *node*, for which it is false or unknown."""
    return [then for truth, then in outcomes(node, facts) if truth is not True]


def applied(action: Action, facts: Facts) -> Facts:
    """Return the facts about a message after *action*."""
    for statement in action.statements:
        key = key_of(statement.property)
        if isinstance(statement, Set):
            facts = facts.with_(key, _set(facts.of(key), _evaluated(statement.expression, facts), key[0]))
        else:
            facts = facts.with_(key, Unknown.ABSENT)
    return facts


def _chained(operands: tuple[Predicate, ...], facts: Facts, *, final: bool) -> Outcomes:
    """Return the outcomes of a conjunction (which False ends) or a disjunction (which True ends)."""
    found: Outcomes = [(not final, facts)]
    for operand in operands:
        following: Outcomes = []
        for truth, then in found:
            if truth is final:
                following.append((truth, then))
                continue
            for each, after in outcomes(operand, then):
                both = final if each is final else None if truth is None or each is None else not final
                following.append((both, after))
        found = _few(following, facts)
    return found


def _few(found: Outcomes, facts: Facts) -> Outcomes:
    if len(found) <= _MOST_OUTCOMES:
        return found
    return [(truth, facts) for truth in dict.fromkeys(truth for truth, _ in found)]


def _nullness(key: Key, facts: Facts) -> Iterator[tuple[bool, Facts]]:
    knowledge = facts.of(key)
    if knowledge is Unknown.ANYTHING:
        yield True, facts.with_(key, Unknown.NOTHING)
        yield False, facts.with_(key, Unknown.SOMETHING)
    else:
        yield is_nothing(knowledge), facts


def _existence(key: Key, facts: Facts) -> Outcomes:
    knowledge = facts.of(key)
    if knowledge in (Unknown.ANYTHING, Unknown.NOTHING):
        there = facts.with_(key, NULL) if knowledge is Unknown.NOTHING else facts
        return [(True, there), (False, facts.with_(key, Unknown.ABSENT))]
    return [(knowledge is not Unknown.ABSENT, facts)]


def is_nothing(knowledge: Knowledge) -> bool:
    """Return whether a property is null or absent for certain."""
    if isinstance(knowledge, Value):
        return knowledge.payload is None
    return knowledge in (Unknown.NOTHING, Unknown.ABSENT)


def _comparison(node: Comparison | In | Like, facts: Facts) -> Outcomes:
    if _is_decided(node, facts):
        try:
            return [(compile_condition(node)(facts, {}), facts)]
        except RuleEvaluationError:
            return [(None, facts)]  # the rule fails: it selects nothing
    if any(_is_unknown(side, facts) for side in _sides(node)):
        return [(None, facts)]
    match node:
        case Comparison(Property() as side, "=" | "<>", Literal(value)) | Comparison(
            Literal(value), "=" | "<>", Property() as side
        ):
            return _equality(key_of(side), (value,), facts, is_negated=node.comparator == "<>")
        case In(Property() as side, items, is_negated) if len(items) <= _MOST_ITEMS:
            literals = tuple(item.value for item in items if isinstance(item, Literal))
            if len(literals) == len(items):
                return _equality(key_of(side), literals, facts, is_negated=is_negated)
    return [(True, facts), (False, facts), (None, facts)]


def _equality(key: Key, values: tuple[Value, ...], facts: Facts, *, is_negated: bool) -> Outcomes:
    there = facts.with_(key, Unknown.SOMETHING)
    equal: Outcomes = [(not is_negated, facts.with_(key, value)) for value in values if value.payload is not None]
    return [*equal, (is_negated, there), (None, facts)]


def _sides(node: Comparison | In | Like) -> tuple[Expression, ...]:
    """Return the expressions that make *node* unknown if they are unknown."""
    if isinstance(node, Comparison):
        return node.left, node.right
    return (node.operand,) if isinstance(node, In) else (node.operand, node.pattern)


def _is_unknown(side: Expression, facts: Facts) -> bool:
    if isinstance(side, Literal):
        return side.value.payload is None
    return isinstance(side, Property) and is_nothing(facts.of(key_of(side)))


def _is_decided(node: Predicate | Expression, facts: Facts) -> bool:
    named = _keys_that_decide(node)
    known = [facts.of(key) for key in named or ()]
    return named is not None and all(isinstance(each, Value) or is_nothing(each) for each in known)


# Thousands of tasks have the same few conditions, and each is asked for every message that reaches it.
@lru_cache(maxsize=4096)
def _keys_that_decide(node: Predicate | Expression) -> tuple[Key, ...] | None:
    """Return the properties on which a node's value depends, None if it depends on something else too."""
    return None if _is_dynamic(node) else tuple(map(key_of, properties_in(node)))


def _is_dynamic(node: object) -> bool:
    """Return whether a node's value depends on more than the properties that it names."""
    if isinstance(node, NewId | Parameter | PropertyNamed):
        return True
    if isinstance(node, Value):
        return False
    if isinstance(node, tuple):
        return any(_is_dynamic(part) for part in node)
    return any(_is_dynamic(getattr(node, name)) for name in getattr(node, "__dataclass_fields__", ()))


def _evaluated(node: Expression, facts: Facts) -> Knowledge:
    if isinstance(node, NewId):
        return Unknown.SOMETHING
    if isinstance(node, Property):
        return facts.of(key_of(node))
    if not _is_decided(node, facts):
        return Unknown.ANYTHING
    try:
        value = compile_expression(node)(facts, {}) or NULL
    except RuleEvaluationError:
        return Unknown.ANYTHING
    # `SET p = p + p` in a ring of tasks creates a text that doubles with every round.
    is_long = isinstance(value.payload, str | bytes) and len(value.payload) > _LONGEST_TEXT
    return Unknown.SOMETHING if is_long else value


def _set(present: Knowledge, new: Knowledge, scope: Scope) -> Knowledge:
    if scope is Scope.SYSTEM:
        # A system property has a fixed type, which is string for most.
        return new if isinstance(new, Value) and new.kind in ("string", "null") else Unknown.ANYTHING
    if not isinstance(new, Value) or is_nothing(present):
        return new if isinstance(new, Value) or new is not Unknown.ABSENT else NULL
    if isinstance(present, Value):
        return converted(new, type_of(present)) or new
    # The new value is converted to the type of the present one, which is unknown.
    return new if new.payload is None else Unknown.SOMETHING
