"""
JMESPath expressions over JSON, with decimal numbers and additional functions.

An expression always ends, and has access only to the body and the properties of the message. Selected numbers keep
every digit; computed numbers have 34, like IEEE 754 decimal128.

Source: jmespath.org, specification and "Custom functions".
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError, JMESPathTypeError
from jmespath.functions import TYPES_MAP
from jmespath.visitor import Options, TreeInterpreter

from shared.codecs.json import ExactJson
from shared.editors.content.expression_functions import DECIMAL, FAILED, ExpressionFunctions
from shared.errors import MessageRejected
from shared.message.message import Message

type Node = Any
"""A node of the library's tree: a dict with type, children and value."""


class Expression:
    """An expression, compiled once; evaluating it leaves no state."""

    def __init__(self, text: str) -> None:
        """Compile *text*; raises ValueError for an invalid expression, or an unknown function."""
        try:
            self._tree: Node = _exact(jmespath.compile(text).parsed)
        except JMESPathError as error:
            raise ValueError(f"is not a JMESPath expression: {_one_line(error)}") from error
        except RecursionError as error:
            raise ValueError("is a JMESPath expression that is nested too deeply") from error
        self._functions = ExpressionFunctions()
        self._interpreter = _Interpreter(Options(custom_functions=self._functions))

    def of(self, value: ExactJson, message: Message) -> ExactJson:
        """Return the result for the body *value* of *message*; raises MessageRejected."""
        self._functions.message = message
        try:
            found: ExactJson = self._interpreter.visit(self._tree, value)
        except MessageRejected:
            raise
        except JMESPathTypeError as error:
            # Its text quotes the value.
            expected = " or ".join(error.expected_types)
            problem = f"{error.function_name}() got {_type_name(error.actual_type)}, expected {expected}"
            raise MessageRejected(FAILED, problem) from None
        except RecursionError as error:
            raise MessageRejected(FAILED, "the body is nested too deeply for the expression") from error
        except Exception as error:  # noqa: BLE001 - the library passes on any error of Python
            problem = f"the expression cannot be evaluated for this body ({type(error).__name__})"
            raise MessageRejected(FAILED, problem) from None
        finally:
            self._functions.message = None
        return found


class _Interpreter(TreeInterpreter):
    """The library's interpreter, which raises where the specification returns null."""

    def visit_comparator(self, node: Node, value: ExactJson) -> bool | None:
        """Return null if a text is compared with a number."""
        try:
            compared: bool | None = super().visit_comparator(node, value)
        except TypeError:
            return None
        return compared


def _exact(node: Node) -> Node:
    """Return the tree of an expression with decimals instead of floats; raises ValueError as `_check`."""
    made = {**node, "children": [_exact(each) if isinstance(each, dict) else each for each in node["children"]]}
    if node["type"] == "literal":
        made["value"] = _exact_literal(node["value"])
    _check(made)
    return made


def _exact_literal(value: Any) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {name: _exact_literal(each) for name, each in value.items()}
    return [_exact_literal(each) for each in value] if isinstance(value, list) else value


def _check(node: Node) -> None:
    """Raise ValueError for errors that the library reports only when it evaluates."""
    if node["type"] == "slice" and node["children"][2] == 0:
        raise ValueError("has a slice with the step 0")
    if node["type"] == "literal" and not _is_finite(node["value"]):
        raise ValueError("has a literal that is not a finite number")
    if node["type"] != "function_expression":
        return
    name, given = node["value"], len(node["children"])
    table: Mapping[str, Any] = ExpressionFunctions.FUNCTION_TABLE
    if name not in table:
        raise ValueError(f"calls {name}(), expected one of {', '.join(sorted(table))}")
    expected = table[name]["signature"]
    is_variadic = bool(expected) and expected[-1].get("variadic", False)
    if given < len(expected) or (given > len(expected) and not is_variadic):
        at_least = "at least " if is_variadic else ""
        raise ValueError(f"calls {name}() with {given} arguments, expected {at_least}{len(expected)}")


def _is_finite(value: Any) -> bool:  # noqa: ANN401 - any JSON
    if isinstance(value, Decimal):
        return value.is_finite()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(_is_finite, inner))


def _type_name(name: str) -> str:
    """Return the JMESPath name of a type, for which the library uses that or Python's name."""
    return "number" if name == DECIMAL else TYPES_MAP.get(name, "another type" if name == "unknown" else name)


def _one_line(error: JMESPathError) -> str:
    """Return the library's text up to its drawing of the expression."""
    return str(error).partition(", for expression")[0].partition("\n")[0]
