"""
Parsing the text of a filter or an action into its syntax tree.

1. Conditions and expressions share parentheses, so one descent parses both and then checks which it is.
2. Nesting is limited, so that no text exhausts the stack; a long chain is not nested.
3. What would fail for every message (an ESCAPE of two characters, SET of a read-only property) fails here.

Source: Microsoft Learn, "Subscription Rule SQL Filter Syntax" and "Subscription Rule SQL Action Syntax"; quotas.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from shared.amqp import values
from shared.amqp.values import Value
from shared.rules.errors import RuleEvaluationError
from shared.rules.lexer import Cursor, Kind, Token
from shared.rules.like import matcher
from shared.rules.properties import SYSTEM_PROPERTIES
from shared.rules.statements import system_value
from shared.rules.syntax import (
    And,
    Chain,
    Comparator,
    Comparison,
    Exists,
    Expression,
    In,
    IsNull,
    Like,
    Literal,
    NewId,
    Not,
    Operator,
    Or,
    Parameter,
    Predicate,
    Property,
    PropertyNamed,
    Remove,
    Scope,
    Set,
    Sign,
    Signed,
    Statement,
)

if TYPE_CHECKING:
    # New in Python 3.13; the wheel of the broker runs on 3.12.
    from typing import TypeIs

MAX_STATEMENTS = 32

type _Node = Expression | Predicate

_COMPARATORS: dict[str, Comparator] = {
    "=": "=",
    "<>": "<>",
    "!=": "<>",
    ">": ">",
    ">=": ">=",
    "<": "<",
    "<=": "<=",
}
# How values of the types without a literal are written.
_HINTS = {
    "timespan": "a duration from 1 ms to 49 days: '0:2:0'",
    "timestamp": "a time in UTC: '2026-01-31T12:00:00Z'",
}
_COMPARISON = "a comparison (=, <>, <, IN, LIKE, IS NULL)"
_VALUE = "a value: a property, a constant, a parameter or a function"


def parse_condition(text: str) -> Predicate:
    """Return the condition in *text*, or a RuleSyntaxError."""
    reader = _Reader(text)
    condition = reader.condition_after(reader.disjunction())
    if not reader.is_at_end():
        raise reader.error("AND, OR or the end of the filter")
    return condition


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of the action *text*, at least one, or a RuleSyntaxError."""
    reader = _Reader(text)
    statements = [reader.statement()]
    while not reader.is_at_end():
        # The grammar separates by commas and says that a semicolon is optional: both are accepted, neither is required.
        is_separated = reader.take_symbol(";") or reader.take_symbol(",")
        if is_separated and reader.is_at_end():
            break
        if len(statements) == MAX_STATEMENTS:
            raise reader.error(f"at most {MAX_STATEMENTS} statements in an action")
        statements.append(reader.statement())
    return tuple(statements)


class _Reader(Cursor):
    """Each method reads what its name says from the place it finds the cursor at."""

    # Conditions.

    def disjunction(self) -> _Node:
        return self._joined("OR", self._conjunction, Or)

    def _conjunction(self) -> _Node:
        return self._joined("AND", self._negation, And)

    def _joined(
        self, keyword: str, part: Callable[[], _Node], join: Callable[[tuple[Predicate, ...]], Predicate]
    ) -> _Node:
        first = part()
        if not self.is_at(Kind.KEYWORD, keyword):
            return first
        operands = [self.condition_after(first)]
        while self.take_keyword(keyword):
            operands.append(self.condition_after(part()))
        return join(tuple(operands))

    def condition_after(self, node: _Node) -> Predicate:
        """Return the node just read if it is a condition; otherwise its comparison is missing here."""
        if not _is_predicate(node):
            raise self.error(_COMPARISON)
        return node

    def _negation(self) -> _Node:
        if not self.take_keyword("NOT"):
            return self._comparison()
        with self.nested():
            return Not(self.condition_after(self._negation()))

    def _comparison(self) -> _Node:
        left = self._sum()
        if _is_predicate(left):
            return left
        comparator = _COMPARATORS.get(self.token.text) if self.token.kind is Kind.SYMBOL else None
        if comparator is not None:
            self.advance()
            return Comparison(left, comparator, self._expression())
        if self.is_at(Kind.KEYWORD, "IS"):
            return self._is_null(left)
        is_negated = self.take_keyword("NOT")
        if self.take_keyword("IN"):
            return self._in(left, is_negated=is_negated)
        if self.take_keyword("LIKE"):
            return self._like(left, is_negated=is_negated)
        if is_negated:
            raise self.error("IN or LIKE after NOT")
        return left

    def _is_null(self, operand: Expression) -> IsNull:
        if not isinstance(operand, Property):
            raise self.error("a comparison: only a property can be compared by IS NULL")
        self.advance()
        is_negated = self.take_keyword("NOT")
        if not self.take_keyword("NULL"):
            raise self.error("NULL" if is_negated else "NULL or NOT NULL")
        return IsNull(operand, is_negated)

    def _in(self, operand: Expression, *, is_negated: bool) -> In:
        self.need_symbol("(")
        items = [self._expression()]
        while self.take_symbol(","):
            items.append(self._expression())
        if not self.take_symbol(")"):
            raise self.error("',' or ')'")
        return In(operand, tuple(items), is_negated)

    def _like(self, operand: Expression, *, is_negated: bool) -> Like:
        pattern_token = self.token
        pattern = self._expression()
        escape_token = self.token
        escape = None
        if self.take_keyword("ESCAPE"):
            escape_token = self.token
            escape = self._expression()
        like = Like(operand, pattern, escape, is_negated)
        self._check_string(pattern, pattern_token, "a pattern in single quotes")
        if escape is not None:
            self._check_string(escape, escape_token, "an ESCAPE of one character in single quotes")
        if isinstance(pattern, Literal) and (escape is None or isinstance(escape, Literal)):
            self._check_pattern(pattern.value, None if escape is None else escape.value, escape_token)
        return like

    def _check_string(self, expression: Expression, token: Token, expected: str) -> None:
        if isinstance(expression, Literal) and not isinstance(expression.value.payload, str | None):
            raise self.error(expected, token)

    def _check_pattern(self, pattern: Value, escape: Value | None, token: Token) -> None:
        escape_text = None if escape is None else escape.payload
        if isinstance(pattern.payload, str) and isinstance(escape_text, str | None):
            try:
                matcher(pattern.payload, escape_text)
            except ValueError as error:
                raise self.error(str(error), token) from error

    # Expressions.

    def _expression(self) -> Expression:
        start = self.token
        return self._value_of(self._sum(), start)

    def _value_of(self, node: _Node, start: Token) -> Expression:
        if _is_predicate(node):
            raise self.error("a value, not a condition", start)
        return node

    def _sum(self) -> _Node:
        return self._chain(self._product, "+-")

    def _product(self) -> _Node:
        return self._chain(self._signed, "*/%")

    def _chain(self, part: Callable[[], _Node], operators: str) -> _Node:
        start = self.token
        first = part()
        rest: list[tuple[Operator, Expression]] = []
        while self.token.kind is Kind.SYMBOL and self.token.text in operators:
            operator = cast("Operator", self.advance().text)
            operand_start = self.token
            rest.append((operator, self._value_of(part(), operand_start)))
        return Chain(self._value_of(first, start), tuple(rest)) if rest else first

    def _signed(self) -> _Node:
        token = self.token
        if token.kind is not Kind.SYMBOL or token.text not in "+-":
            return self._primary()
        self.advance()
        if self.token.kind in (Kind.INTEGER, Kind.DOUBLE):
            return self._number(token.text.strip("+"))
        with self.nested():
            start = self.token
            return Signed(cast("Sign", token.text), self._value_of(self._signed(), start))

    def _primary(self) -> _Node:
        token = self.token
        match token.kind:
            case Kind.INTEGER | Kind.DOUBLE:
                return self._number("")
            case Kind.STRING:
                return Literal(values.string(self.advance().text))
            case Kind.PARAMETER:
                return Parameter(self.advance().text)
            case Kind.NAME:
                return self._function() if self.is_at_call() else self._property()
            case Kind.KEYWORD:
                return self._constant_or_exists()
            case Kind.SYMBOL if token.text == "(":
                return self._group()
            case _:
                raise self.error(_VALUE)

    def _group(self) -> _Node:
        self.advance()
        with self.nested():
            node = self.disjunction()
        self.need_symbol(")")
        return node

    def _number(self, sign: str) -> Literal:
        token = self.advance()
        if token.kind is Kind.DOUBLE:
            double = float(sign + token.text)
            if math.isinf(double):
                raise self.error("a number in the range of a Double", token)
            return Literal(values.double(double))
        try:
            return Literal(values.long(int(sign + token.text)))
        except ValueError as error:
            raise self.error("a number in the range of an Int64", token) from error

    def _constant_or_exists(self) -> Literal | Exists:
        token = self.advance()
        match token.text:
            case "NULL":
                return Literal(values.NULL)
            case "TRUE" | "FALSE":
                return Literal(values.boolean(token.text == "TRUE"))
            case "EXISTS":
                self.need_symbol("(")
                property_ = self._property()
                self.need_symbol(")")
                return Exists(property_)
            case _:
                raise self.error(_VALUE, token, hint=f"write a property of that name in brackets: [{token.text}]")

    def _function(self) -> NewId | PropertyNamed:
        token = self.advance()
        self.advance()
        match token.text.lower():
            case "newid":
                self.need_symbol(")")
                return NewId()
            case "property" | "p":
                with self.nested():
                    name = self._expression()
                self.need_symbol(")")
                return PropertyNamed(name)
            case _:
                raise self.error("newid(), property(name) or p(name)", token)

    def _property(self) -> Property:
        first = self._name()
        if first.is_delimited or not self.take_symbol("."):
            return Property(first.text)
        if first.text.lower() not in tuple(Scope):
            raise self.error(
                "the scope sys or user before the dot", first, hint="write a name with a dot in brackets: [a.b]"
            )
        return Property(self._name().text, Scope(first.text.lower()))

    def _name(self) -> Token:
        token = self.token
        if token.kind is Kind.KEYWORD:
            raise self.error("the name of a property", hint=f"write a keyword as a name in brackets: [{token.text}]")
        if token.kind is not Kind.NAME:
            raise self.error("the name of a property")
        return self.advance()

    # Actions.

    def statement(self) -> Statement:
        if self.take_keyword("REMOVE"):
            return Remove(self._changeable_property())
        if not self.take_keyword("SET"):
            raise self.error("SET or REMOVE")
        property_ = self._changeable_property()
        self.need_symbol("=")
        start = self.token
        expression = self._expression()
        if property_.scope is Scope.SYSTEM and isinstance(expression, Literal) and expression.value != values.NULL:
            system_property = SYSTEM_PROPERTIES[property_.name.lower()]
            try:
                system_value(system_property, expression.value)
            except RuleEvaluationError as error:
                expected = f"a {system_property.type} that sys.{system_property.name} can hold"
                raise self.error(expected, start, hint=_HINTS.get(system_property.type, "")) from error
        return Set(property_, expression)

    def _changeable_property(self) -> Property:
        start = self.token
        property_ = self._property()
        if property_.scope is Scope.SYSTEM:
            system_property = SYSTEM_PROPERTIES.get(property_.name.lower())
            if system_property is None or not system_property.is_settable:
                names = sorted({each.name for each in SYSTEM_PROPERTIES.values() if each.is_settable})
                raise self.error(f"a system property that can be set: {', '.join(names)}", start)
        return property_


def _is_predicate(node: _Node) -> "TypeIs[Predicate]":
    return isinstance(node, Comparison | IsNull | Exists | In | Like | Not | And | Or)
