"""Runs the part of the Kusto query language that the alerts use, over rows as dictionaries."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

type Row = dict[str, Any]
type Value = Callable[[Mapping[str, Any]], Any]
type Total = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]

_TOKEN = re.compile(
    r"""\s*(?:(?P<span>\d+[smhd]\b)|(?P<number>\d+(?:\.\d+)?)|'(?P<text>[^']*)'|(?P<name>\w+)
    |(?P<sign>==|!=|>=|<=|[-+*/<>()\[\],=]))""",
    re.VERBOSE,
)
_UNION = re.compile(r"union isfuzzy=true (?P<table>\w+)(, \(datatable\((?P<columns>[\w:, ]+)\) \[\]\))?")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
_SUMS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub}


def run(query: str, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return the rows that *query* gives; a part of the language that is missing here raises ValueError."""
    table, *steps = [each.strip() for each in re.split(r"^\s*\|", query.strip(), flags=re.MULTILINE)]
    rows = _union(table, tables) if table.startswith("union ") else [dict(each) for each in tables[table]]
    for step in steps:
        verb, _, rest = step.partition(" ")
        rows = _VERBS[verb](rows, rest)
    return rows


def _union(text: str, tables: Mapping[str, Sequence[Row]]) -> list[Row]:
    """Return the rows of the tables that exist; without any, an empty one that the query itself has must be there."""
    match = _UNION.fullmatch(text)
    if match is None:
        raise ValueError(f"not understood: {text!r}")
    if match["table"] not in tables and match["columns"] is None:
        raise ValueError(f"Failed to resolve table or column expression named '{match['table']}'")
    return [dict(each) for each in tables.get(match["table"], ())]


def _where(rows: Iterable[Row], text: str) -> list[Row]:
    condition = _Parser(text).whole()
    return [row for row in rows if condition(row)]


def _extend(rows: Iterable[Row], text: str) -> list[Row]:
    columns = _Parser(text).columns()
    return [{**row, **{name: value(row) for name, value in columns}} for row in rows]


def _project(rows: Iterable[Row], text: str) -> list[Row]:
    columns = _Parser(text).columns()
    return [{name: value(row) for name, value in columns} for row in rows]


def _summarize(rows: Iterable[Row], text: str) -> list[Row]:
    totals, by = _Parser(text).summary()
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for each in rows:
        groups.setdefault(tuple(value(each) for _, value in by), []).append(each)
    found = []
    for key, members in groups.items():
        row = dict(zip((name for name, _ in by), key, strict=True))
        for total in totals:
            row |= total(members)
        found.append(row)
    return found


_VERBS: Mapping[str, Callable[[Iterable[Row], str], list[Row]]] = {
    "where": _where, "extend": _extend, "project": _project, "summarize": _summarize,
}  # fmt: skip


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"not understood: {text[at:]!r}")
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind]))
            at = match.end()

    def whole(self) -> Value:
        value = self._either()
        if self._tokens:
            raise ValueError(f"not understood: {self._tokens}")
        return value

    def columns(self) -> list[tuple[str, Value]]:
        found = [self._column()]
        while self._is(","):
            found.append(self._column())
        return found

    def summary(self) -> tuple[list[Total], list[tuple[str, Value]]]:
        totals = []
        while not self._is("by"):
            totals.append(self._total())
            self._is(",")
        by = self.columns()
        if self._tokens:
            raise ValueError(f"not understood: {self._tokens}")
        return totals, by

    def _column(self) -> tuple[str, Value]:
        if self._peek(1) == "=":
            name = self._next()
            self._expect("=")
            return name, self._either()
        # A column without a name has that of the column it is made of.
        first = self._peek(0)
        named = self._peek(2) if first == "bin" else first
        return named, self._either()

    def _total(self) -> Total:
        name = self._next()
        function = name
        if self._is("="):
            function = self._next()
        else:
            name = {"arg_max": ""}.get(function, f"{function}_")
        self._expect("(")
        arguments = []
        names = []
        while not self._is(")"):
            names.append(self._peek(0))
            arguments.append(self._either())
            self._is(",")
        if function == "arg_max":
            return lambda rows: dict(zip(names, _latest(rows, arguments), strict=True))
        combine = _TOTALS[function]
        return lambda rows: {name: combine([[value(row) for value in arguments] for row in rows])}

    def _either(self) -> Value:
        parts = [self._both()]
        while self._is("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda row: any(part(row) for part in parts)

    def _both(self) -> Value:
        parts = [self._comparison()]
        while self._is("and"):
            parts.append(self._comparison())
        return parts[0] if len(parts) == 1 else lambda row: all(part(row) for part in parts)

    def _comparison(self) -> Value:
        left = self._sum()
        if self._is("in"):
            self._expect("(")
            among = [self._sum()]
            while self._is(","):
                among.append(self._sum())
            self._expect(")")
            return lambda row: left(row) in [each(row) for each in among]
        for sign, compare in _COMPARISONS.items():
            if self._is(sign):
                right = self._sum()
                return lambda row: compare(left(row), right(row))
        return left

    def _sum(self) -> Value:
        left = self._value()
        for sign, combine in _SUMS.items():
            if self._is(sign):
                right = self._value()
                return lambda row: combine(left(row), right(row))
        return left

    def _value(self) -> Value:
        kind, text = self._tokens.pop(0)
        if kind == "text":
            return lambda _: text
        if kind == "number":
            return lambda _: float(text)
        if kind == "span":
            span = timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
            return lambda _: span
        if text == "(":
            value = self._either()
            self._expect(")")
            return value
        if kind != "name":
            raise ValueError(f"not understood: {text!r}")
        if self._is("("):
            arguments = [self._either()]
            while self._is(","):
                arguments.append(self._either())
            self._expect(")")
            function = _FUNCTIONS[text]
            return lambda row: function(*(argument(row) for argument in arguments))
        if self._is("["):
            key = self._either()
            self._expect("]")
            return lambda row: row[text].get(key(row))
        return lambda row: row[text]

    def _peek(self, ahead: int) -> str:
        return self._tokens[ahead][1] if ahead < len(self._tokens) else ""

    def _next(self) -> str:
        return self._tokens.pop(0)[1]

    def _is(self, text: str) -> bool:
        if not self._tokens or self._tokens[0][0] == "text" or self._tokens[0][1] != text:
            return False
        self._tokens.pop(0)
        return True

    def _expect(self, text: str) -> None:
        if not self._is(text):
            raise ValueError(f"expected {text!r}: {self._tokens}")


def _latest(rows: Sequence[Mapping[str, Any]], arguments: Sequence[Value]) -> list[Any]:
    row = max(rows, key=arguments[0])
    return [value(row) for value in arguments]


def _bin(time: datetime, span: timedelta) -> datetime:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    return start + (time - start) // span * span


# A property that is missing is an empty text.
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "tostring": lambda value: "" if value is None else str(value),
    "bin": _bin,
}
_TOTALS: Mapping[str, Callable[[list[list[Any]]], Any]] = {
    "count": len,
    "countif": lambda rows: sum(bool(row[0]) for row in rows),
    "min": lambda rows: min(row[0] for row in rows),
    "minif": lambda rows: min((row[0] for row in rows if row[1]), default=None),
    "max": lambda rows: max(row[0] for row in rows),
    "sum": lambda rows: sum(row[0] for row in rows),
}
