r"""
The regular expressions of JSON Schema, ECMA-262 with Unicode, written as Python's.

Python matches `$` also before a final line feed, and `\d` also with digits of other scripts. Not possible are
look-behinds of no fixed width, and modifiers. Python keeps the captures of an earlier repetition.

Source: ECMA-262, 22.2 "RegExp (Regular Expression) Objects", with the flag `u`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import count

_LAST = 0x10FFFF
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")
_LARGEST_COUNT = 2**31
_LEADS = range(0xD800, 0xDC00)
"""The first halves of the pairs that UTF-16 has for code points beyond FFFF; the second halves follow them."""
_LINE_ENDS = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_DIGITS = ((0x30, 0x39),)
_WORD = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE = (
    *((0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F)),
    *((0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_CLASSES = {"d": _DIGITS, "w": _WORD, "s": _SPACE}
_CONTROLS = {"f": 0x0C, "n": 0x0A, "r": 0x0D, "t": 0x09, "v": 0x0B}
_NAME = re.compile(r"<([^\W\d][\w$]*|\$[\w$]*)>")
_REPEATS = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_PROPERTY = re.compile(r"\{([A-Za-z0-9_]+)(?:=([A-Za-z0-9_]+))?\}")
_NOTHING = "(?!)"
_PREFIXES = count()

type _Ranges = Sequence[tuple[int, int]]


class NotAPattern(ValueError):
    """A text that is no regular expression of ECMA-262, or one that cannot be used."""


@lru_cache(maxsize=4096)
def python_pattern(text: str) -> str:
    """
    Return the pattern *text* in Python's language, for `re.search`; raises NotAPattern.

    Several may be joined with `|`: their groups have different names.
    """
    try:
        made = _Reader(text).read()
        re.compile(made)
    except (re.error, OverflowError, RecursionError) as error:
        raise NotAPattern(f"cannot be used: {getattr(error, 'msg', 'it is too deep or too large')}") from error
    return f"(?:{made})"


class _Reader:
    """Reads one pattern."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0
        self._closed: set[int] = set()
        self._names = _group_names(text)
        self._total = len(self._names)
        self._prefix = f"g{next(_PREFIXES)}_"

    def read(self) -> str:
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._error("has a ) without (")
        return found

    def _error(self, problem: str) -> NotAPattern:
        return NotAPattern(f"{problem}, at character {self._at}")

    def _alternatives(self) -> str:
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._takes("|"):
                parts.append("|")
            else:
                parts.append(self._term())
        return "".join(parts)

    def _takes(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _term(self) -> str:
        for theirs, ours in _ASSERTIONS.items():
            if self._takes(theirs):
                return ours
        for opening in ("(?=", "(?!", "(?<=", "(?<!"):
            if self._takes(opening):
                return self._closed_group(opening)
        return self._atom() + self._quantifier()

    def _closed_group(self, opening: str) -> str:
        inner = self._alternatives()
        if not self._takes(")"):
            raise self._error("has a ( without )")
        return f"{opening}{inner})"

    def _atom(self) -> str:
        if self._takes("."):
            return _class(_complement(_LINE_ENDS))
        if self._takes("(?:"):
            return self._closed_group("(?:")
        if self._takes("(?"):
            name = _NAME.match(self._text, self._at)
            if name is None:
                raise self._error("has a group that ECMA-262 does not have, or a modifier")
            self._at = name.end()
            return self._group()
        if self._takes("("):
            return self._group()
        if self._takes("["):
            return self._class()
        if self._takes("\\"):
            return self._escape()
        char = self._text[self._at]
        if char in _SYNTAX and char != "/":
            raise self._error(f"has {char} where nothing can be repeated, expected \\{char} for the character")
        self._at += 1
        return _literal(ord(char))

    def _group(self) -> str:
        self._groups += 1
        number = self._groups
        made = self._closed_group(f"(?P<{self._prefix}{number}>")
        self._closed.add(number)
        return made

    def _quantifier(self) -> str:
        for sign in "*+?":
            if self._takes(sign):
                return sign + ("?" if self._takes("?") else "")
        repeats = _REPEATS.match(self._text, self._at)
        if repeats is None:
            return ""
        least, most = int(repeats[1]), int(repeats[3]) if repeats[3] else None
        if max(least, most or 0) >= _LARGEST_COUNT or (most is not None and most < least):
            raise self._error("has a number of repetitions that is out of order or too large")
        self._at = repeats.end()
        return repeats[0] + ("?" if self._takes("?") else "")

    def _escape(self) -> str:
        named = _NAME.match(self._text, self._at + 1) if self._text.startswith("k", self._at) else None
        if named is not None:
            self._at = named.end()
            if named[1] not in self._names:
                raise self._error(f"refers to the group {named[1]}, which is missing")
            return self._reference(self._names.index(named[1]) + 1)
        number = re.compile("[1-9][0-9]*").match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            if int(number[0]) > self._total:
                raise self._error(f"refers to group {number[0]}, which is missing")
            return self._reference(int(number[0]))
        found = self._class_escape()
        if found is not None:
            return _class(found)
        return _literal(self._char_escape())

    def _reference(self, number: int) -> str:
        # A group that has not taken part is empty in ECMA-262, and matches nothing in Python.
        if number not in self._closed:
            return "(?:)"
        name = f"{self._prefix}{number}"
        return f"(?({name})(?P={name})|)"

    def _class_escape(self) -> _Ranges | None:
        r"""Return the characters of an escape such as \d or \p{L}, None if another one comes."""
        char = self._text[self._at : self._at + 1]
        if char and char in "dDwWsS":
            self._at += 1
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _complement(ranges)
        if char and char in "pP":
            found = _PROPERTY.match(self._text, self._at + 1)
            if found is None:
                raise self._error(f"has \\{char} without a property of Unicode in braces")
            self._at = found.end()
            named = _property_ranges(found[1], found[2])
            if named is None:
                raise self._error(f"names {found[0]}, which is no property of Unicode that is known")
            return named if char == "p" else _complement(named)
        return None

    def _char_escape(self) -> int:
        """Return the character that an escape means."""
        char = self._text[self._at : self._at + 1]
        self._at += 1
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "c" and re.fullmatch("[A-Za-z]", self._text[self._at : self._at + 1]):
            self._at += 1
            return ord(self._text[self._at - 1]) % 32
        if char == "0" and not self._text[self._at : self._at + 1].isdecimal():
            return 0
        if char == "x":
            return self._hexadecimal(2)
        if char == "u":
            return self._code_point()
        # ECMA-262 has these escapes for characters of its syntax only; of other punctuation they are not ambiguous.
        if char and (char in _SYNTAX or (char.isascii() and not char.isalnum() and char != "_")):
            return ord(char)
        raise self._error(f"has the escape \\{char}, which ECMA-262 does not have")

    def _hexadecimal(self, length: int) -> int:
        digits = self._text[self._at : self._at + length]
        if not re.fullmatch(f"[0-9A-Fa-f]{{{length}}}", digits):
            raise self._error(f"has an escape without {length} hexadecimal digits")
        self._at += length
        return int(digits, 16)

    def _code_point(self) -> int:
        braced = re.compile(r"\{([0-9A-Fa-f]{1,8})\}").match(self._text, self._at)
        if braced is not None:
            self._at = braced.end()
            if int(braced[1], 16) > _LAST:
                raise self._error("has a code point beyond 10FFFF")
            return int(braced[1], 16)
        lead = self._hexadecimal(4)
        trail = re.compile(r"\\u([Dd][C-Fc-f][0-9A-Fa-f]{2})").match(self._text, self._at)
        if lead in _LEADS and trail is not None:
            self._at = trail.end()
            return 0x10000 + ((lead - _LEADS.start) << 10) + int(trail[1], 16) - _LEADS.stop
        return lead

    def _class(self) -> str:
        is_negated = self._takes("^")
        ranges: list[tuple[int, int]] = []
        while not self._takes("]"):
            first = self._class_atom()
            # A - at the end, or beside a class such as \d, would be an error in ECMA-262 only beside the class.
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._class_atom()
                if not isinstance(first, int) or not isinstance(last, int) or last < first:
                    raise self._error("has a range in a class whose ends are no characters, or out of order")
                ranges.append((first, last))
            elif isinstance(first, int):
                ranges.append((first, first))
            else:
                ranges += first
        return _class(_complement(ranges) if is_negated else ranges)

    def _class_atom(self) -> int | _Ranges:
        if self._at >= len(self._text):
            raise self._error("has a [ without ]")
        if not self._takes("\\"):
            self._at += 1
            return ord(self._text[self._at - 1])
        if self._takes("b"):
            return 0x08
        found = self._class_escape()
        return self._char_escape() if found is None else found


def _group_names(text: str) -> list[str | None]:
    """Return the name of each capturing group of a pattern, None for one without."""
    names: list[str | None] = []
    is_class = False
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "[":
            is_class = True
        elif text[at] == "]":
            is_class = False
        elif text[at] == "(" and not is_class:
            named = _NAME.match(text, at + 2) if text.startswith("(?", at) else None
            if named is not None:
                if named[1] in names:
                    raise NotAPattern(f"has two groups with the name {named[1]}")
                names.append(named[1])
            elif not text.startswith("(?", at):
                names.append(None)
        at += 1
    return names


@lru_cache(maxsize=256)
def _property_ranges(name: str, value: str | None) -> _Ranges | None:
    """Return the characters with a property of Unicode, such as L or Script=Greek; None if it is unknown."""
    import regex  # type: ignore[import-untyped]  # noqa: PLC0415 - for the few schemas that name such properties

    if value is None:
        wanted = name
    elif name in _VALUED:
        wanted = f"{_VALUED[name]}={value}"
    else:
        return None
    try:
        found = regex.compile(rf"\p{{{wanted}}}+")
    except regex.error:
        return None
    return [(each.start(), each.end() - 1) for each in found.finditer(_every_character())]


@lru_cache(maxsize=1)
def _every_character() -> str:
    return "".join(map(chr, range(_LAST + 1)))


def _complement(ranges: Iterable[tuple[int, int]]) -> _Ranges:
    found: list[tuple[int, int]] = []
    begin = 0
    for first, last in sorted(ranges):
        if first > begin:
            found.append((begin, first - 1))
        begin = max(begin, last + 1)
    return [*found, (begin, _LAST)] if begin <= _LAST else found


def _class(ranges: _Ranges) -> str:
    if not ranges:
        return _NOTHING
    pairs = (_char(first) + ("" if first == last else f"-{_char(last)}") for first, last in ranges)
    return f"[{''.join(pairs)}]"


def _char(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\U{code:08x}"


_literal: Callable[[int], str] = _char
_VALUED = {
    **dict.fromkeys(("General_Category", "gc"), "gc"),
    **dict.fromkeys(("Script", "sc"), "sc"),
    **dict.fromkeys(("Script_Extensions", "scx"), "scx"),
}
_IN_WORD = _class(_WORD)
_ASSERTIONS = {
    "^": r"\A",
    "$": r"\Z",
    r"\b": f"(?:(?<={_IN_WORD})(?!{_IN_WORD})|(?<!{_IN_WORD})(?={_IN_WORD}))",
    r"\B": f"(?:(?<={_IN_WORD})(?={_IN_WORD})|(?<!{_IN_WORD})(?!{_IN_WORD}))",
}
