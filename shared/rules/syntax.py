"""
The syntax tree of a rule; `str()` of a node is text that parses to an equal node.

The text is spaced for reading, so that a rule just below the limit of 1,024 characters may exceed it.

1. Grouping is kept: (a AND b) AND c is a conjunction of two, of which the first is a conjunction of two.
2. Chains are flat: a AND b AND c and a + b - c are one node each, so a long rule is not a deep one.
3. A sign before a number belongs to the number.

Source: Microsoft Learn, "Subscription Rule SQL Filter Syntax" and "Subscription Rule SQL Action Syntax".
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Literal as OneOf

from shared.amqp.values import Value
from shared.rules.lexer import is_regular_identifier

type Comparator = OneOf["=", "<>", ">", ">=", "<", "<="]
type Operator = OneOf["+", "-", "*", "/", "%"]
type Sign = OneOf["+", "-"]


class Scope(StrEnum):
    """The scope of a property."""

    SYSTEM = "sys"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: null, a boolean, a long, a double or a string."""

    value: Value

    def __str__(self) -> str:
        payload = self.value.payload
        match payload:
            case None:
                return "NULL"
            case bool():
                return "TRUE" if payload else "FALSE"
            case str():
                return "'" + payload.replace("'", "''") + "'"
            case _:
                return repr(payload)


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message, by its name as written."""

    name: str
    scope: Scope = Scope.USER

    def __str__(self) -> str:
        name = self.name if is_regular_identifier(self.name) else "[" + self.name.replace("]", "]]") + "]"
        return name if self.scope is Scope.USER else f"{self.scope}.{name}"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value that is supplied with the rule, by its name without the @."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, slots=True)
class NewId:
    """newid(): a new uuid at each evaluation."""

    def __str__(self) -> str:
        return "newid()"


@dataclass(frozen=True, slots=True)
class PropertyNamed:
    """property(name), p(name): the user property whose name an expression yields."""

    name: "Expression"

    def __str__(self) -> str:
        return f"property({self.name})"


@dataclass(frozen=True, slots=True)
class Signed:
    """A sign before anything but a number."""

    sign: Sign
    operand: "Expression"

    def __str__(self) -> str:
        is_bare = isinstance(self.operand, Property | Parameter | NewId | PropertyNamed)
        return f"{self.sign}{self.operand}" if is_bare else f"{self.sign}({self.operand})"


@dataclass(frozen=True, slots=True)
class Chain:
    """
    Operators of one precedence, applied from left to right.

    Shape: the first operand, then at least one pair; either all of + and -, or all of *, / and %.
    """

    first: "Expression"
    rest: "tuple[tuple[Operator, Expression], ...]"

    @property
    def is_product(self) -> bool:
        """Return whether the operators bind like * rather than like +."""
        return self.rest[0][0] in "*/%"

    def __str__(self) -> str:
        parts = [self._operand(self.first)]
        for operator, operand in self.rest:
            parts += [operator, self._operand(operand)]
        return " ".join(parts)

    def _operand(self, operand: "Expression") -> str:
        is_grouped = isinstance(operand, Chain) and (self.is_product or not operand.is_product)
        return f"({operand})" if is_grouped else str(operand)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two expressions compared; != is <>."""

    left: "Expression"
    comparator: Comparator
    right: "Expression"

    def __str__(self) -> str:
        return f"{self.left} {self.comparator} {self.right}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Property IS [NOT] NULL."""

    property: Property
    is_negated: bool = False

    def __str__(self) -> str:
        return f"{self.property} IS NOT NULL" if self.is_negated else f"{self.property} IS NULL"


@dataclass(frozen=True, slots=True)
class Exists:
    """EXISTS ( property )."""

    property: Property

    def __str__(self) -> str:
        return f"EXISTS ({self.property})"


@dataclass(frozen=True, slots=True)
class In:
    """Expression [NOT] IN ( expression, … )."""

    operand: "Expression"
    items: "tuple[Expression, ...]"
    is_negated: bool = False

    def __str__(self) -> str:
        keyword = "NOT IN" if self.is_negated else "IN"
        return f"{self.operand} {keyword} ({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class Like:
    """Expression [NOT] LIKE pattern [ESCAPE character]."""

    operand: "Expression"
    pattern: "Expression"
    escape: "Expression | None" = None
    is_negated: bool = False

    def __str__(self) -> str:
        keyword = "NOT LIKE" if self.is_negated else "LIKE"
        escape = "" if self.escape is None else f" ESCAPE {self.escape}"
        return f"{self.operand} {keyword} {self.pattern}{escape}"


@dataclass(frozen=True, slots=True)
class Not:
    """NOT predicate."""

    operand: "Predicate"

    def __str__(self) -> str:
        return f"NOT ({self.operand})" if isinstance(self.operand, And | Or) else f"NOT {self.operand}"


@dataclass(frozen=True, slots=True)
class And:
    """Predicates that must all be true, two at least."""

    operands: "tuple[Predicate, ...]"

    def __str__(self) -> str:
        return " AND ".join(f"({each})" if isinstance(each, And | Or) else str(each) for each in self.operands)


@dataclass(frozen=True, slots=True)
class Or:
    """Predicates of which one must be true, two at least."""

    operands: "tuple[Predicate, ...]"

    def __str__(self) -> str:
        return " OR ".join(f"({operand})" if isinstance(operand, Or) else str(operand) for operand in self.operands)


@dataclass(frozen=True, slots=True)
class Set:
    """SET property = expression."""

    property: Property
    expression: "Expression"

    def __str__(self) -> str:
        return f"SET {self.property} = {self.expression}"


@dataclass(frozen=True, slots=True)
class Remove:
    """REMOVE property."""

    property: Property

    def __str__(self) -> str:
        return f"REMOVE {self.property}"


type Expression = Literal | Property | Parameter | NewId | PropertyNamed | Signed | Chain
type Predicate = Comparison | IsNull | Exists | In | Like | Not | And | Or
type Statement = Set | Remove


def properties_in(node: object) -> Iterator[Property]:
    """Yield the properties that a node, or any node in a tuple of nodes, names outright."""
    if isinstance(node, Property):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from properties_in(part)
    elif is_dataclass(node):
        for part in fields(node):
            yield from properties_in(getattr(node, part.name))
