"""The text of a rule as tokens, and what in them looks like the text of another SQL."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import NamedTuple

from shared.rules.errors import RuleSyntaxError

MAX_CHARACTERS = 1024
MAX_NESTING = 32

KEYWORDS = frozenset(
    ["AND", "OR", "NOT", "IS", "NULL", "IN", "LIKE", "ESCAPE", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE"]
)

# Longest first: `<=` before `<`.
_SYMBOLS = ("<>", "!=", ">=", "<=", "=", ">", "<", "+", "-", "*", "/", "%", "(", ")", ",", ".", ";")
_NUMBER = re.compile(r"[0-9]+(?P<fraction>\.[0-9]+)?(?P<exponent>[Ee][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")
# The delimiters of an identifier; the right one is doubled to represent itself.
_DELIMITERS = {"[": "]", '"': '"'}


class Kind(Enum):
    """The kind of a token."""

    KEYWORD = auto()
    NAME = auto()
    PARAMETER = auto()
    INTEGER = auto()
    DOUBLE = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


class Token(NamedTuple):
    """
    One word of a rule.

    Shape: text is the upper-case keyword, the name or string without its delimiters, the digits, or the symbol;
    is_delimited tells [p] and "p" from p; end is the position after the token.
    """

    kind: Kind
    text: str
    position: int
    end: int
    is_delimited: bool = False


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of *text*, an END token last; a RuleSyntaxError for anything that is not a token."""
    surrogate = _SURROGATE.search(text)
    if surrogate is not None:
        raise RuleSyntaxError(text, surrogate.start(), expected="a Unicode character", seen="half a surrogate pair")
    tokens = []
    position = 0
    while True:
        while position < len(text) and text[position].isspace():
            position += 1
        token = _token_at(text, position)
        tokens.append(token)
        if token.kind is Kind.END:
            return tokens
        position = token.end


def is_regular_identifier(name: str) -> bool:
    """Return whether *name* needs no brackets in a rule."""
    return _identifier_end(name, 0) == len(name) > 0 and not _is_keyword(name)


def _token_at(text: str, position: int) -> Token:
    if position == len(text):
        return Token(Kind.END, "", position, position)
    first = text[position]
    if first.isalpha():
        return _word(text, position)
    if first.isascii() and first.isdigit():
        return _number(text, position)
    if first == "'":
        content, end = _delimited(text, position, "'", "the closing ' of the string")
        return Token(Kind.STRING, content, position, end)
    if first in _DELIMITERS:
        closing = _DELIMITERS[first]
        name, end = _delimited(text, position, closing, f"the closing {closing} of the name")
        if not name:
            raise RuleSyntaxError(text, position, expected="a name between the delimiters", seen="nothing")
        return Token(Kind.NAME, name, position, end, is_delimited=True)
    if first == "@":
        return _parameter(text, position)
    for symbol in _SYMBOLS:
        if text.startswith(symbol, position):
            return Token(Kind.SYMBOL, symbol, position, position + len(symbol))
    raise RuleSyntaxError(text, position, expected="a name, a value or an operator", seen=ascii(first))


def _word(text: str, position: int) -> Token:
    end = _identifier_end(text, position)
    word = text[position:end]
    if _is_keyword(word):
        return Token(Kind.KEYWORD, word.upper(), position, end)
    return Token(Kind.NAME, word, position, end)


def _is_keyword(word: str) -> bool:
    # Some letters beyond ASCII have an ASCII upper case: a dotless i is not an I.
    return word.isascii() and word.upper() in KEYWORDS


def _identifier_end(text: str, position: int) -> int:
    """Return the end of the identifier at *position*: a letter, then letters, decimal digits and underscores."""
    end = position
    while end < len(text) and (text[end].isalpha() or (end > position and (text[end] == "_" or text[end].isdecimal()))):
        end += 1
    return end


def _number(text: str, position: int) -> Token:
    match = _NUMBER.match(text, position)
    assert match is not None  # noqa: S101 - the caller has checked the first digit
    end = match.end()
    if end < len(text) and (text[end].isalpha() or text[end] in "_."):
        hint = "write a name that starts with a digit in brackets: [2nd]"
        raise RuleSyntaxError(text, end, expected="the end of the number", seen=ascii(text[end]), hint=hint)
    is_integer = match["fraction"] is None and match["exponent"] is None
    return Token(Kind.INTEGER if is_integer else Kind.DOUBLE, match[0], position, end)


def _parameter(text: str, position: int) -> Token:
    end = position + 1
    while end < len(text) and (text[end].isalpha() or text[end] == "_" or text[end].isdecimal()):
        end += 1
    if end == position + 1:
        raise RuleSyntaxError(text, end, expected="the name of a parameter after @", seen=_character(text, end))
    return Token(Kind.PARAMETER, text[position + 1 : end], position, end)


def _delimited(text: str, position: int, closing: str, expected: str) -> tuple[str, int]:
    """Return the delimited content at *position* and the position after it; a doubled *closing* is one character."""
    parts = []
    start = position + 1
    while True:
        end = text.find(closing, start)
        if end < 0:
            raise RuleSyntaxError(text, len(text), expected=expected, seen="the end of the rule")
        parts.append(text[start:end])
        if not text.startswith(closing, end + 1):
            return closing.join(parts), end + 1
        start = end + 2


def _character(text: str, position: int) -> str:
    return ascii(text[position]) if position < len(text) else "the end of the rule"


class Cursor:
    """A position in the tokens of one rule, with its nesting depth and the error for an unexpected token."""

    def __init__(self, text: str) -> None:
        """Start at the beginning of *text*; a RuleSyntaxError if it is too long or has no tokens."""
        if len(text) > MAX_CHARACTERS:
            expected = f"at most {MAX_CHARACTERS} characters"
            raise RuleSyntaxError(text, MAX_CHARACTERS, expected=expected, seen=f"{len(text)}")
        self._text = text
        self._tokens = tokens_of(text)
        self._index = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """Return the current token."""
        return self._tokens[self._index]

    def is_at_end(self) -> bool:
        """Return whether no token is left."""
        return self.token.kind is Kind.END

    def is_at(self, kind: Kind, text: str) -> bool:
        """Return whether this is the current token."""
        return self.token.kind is kind and self.token.text == text

    def is_at_call(self) -> bool:
        """Return whether the next tokens are a name and a parenthesis."""
        if self.token.kind is not Kind.NAME or self.token.is_delimited:
            return False
        after = self._tokens[self._index + 1]
        return after.kind is Kind.SYMBOL and after.text == "("

    def advance(self) -> Token:
        """Return the current token and advance."""
        token = self.token
        self._index += 1
        return token

    def take_symbol(self, symbol: str) -> bool:
        """Skip *symbol* if it is the current token."""
        return self._take(Kind.SYMBOL, symbol)

    def take_keyword(self, keyword: str) -> bool:
        """Skip *keyword* if it is the current token."""
        return self._take(Kind.KEYWORD, keyword)

    def need_symbol(self, symbol: str) -> None:
        """Skip *symbol*; a RuleSyntaxError if it is not the current token."""
        if not self.take_symbol(symbol):
            raise self.error(f"'{symbol}'")

    def error(self, expected: str, token: Token | None = None, *, hint: str = "") -> RuleSyntaxError:
        """Return the error that *token*, by default the current one, is not what was expected."""
        token = token or self.token
        seen = "the end of the rule" if token.kind is Kind.END else self._text[token.position : token.end]
        return RuleSyntaxError(self._text, token.position, expected=expected, seen=seen, hint=hint)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Enter one level of nesting; the limit keeps any text from exhausting the stack."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(f"at most {MAX_NESTING} levels of nesting")
        yield
        self._depth -= 1

    def _take(self, kind: Kind, text: str) -> bool:
        is_there = self.is_at(kind, text)
        self._index += is_there
        return is_there


_BEFORE_A_VALUE = frozenset(("=", "<>", "!=", "<", "<=", ">", ">=", "+"))


def quoted_values(text: str) -> list[str]:
    """
    Return the names in double quotes that a rule compares with or assigns, as another SQL would text.

    Raises:  RuleSyntaxError for what is no rule and has such a name.

    >>> quoted_values('color = "red" AND "made in" IS NOT NULL')
    ['red']
    """
    if '"' not in text:
        return []
    tokens = tokens_of(text)
    quoted = (n for n, token in enumerate(tokens) if token.kind is Kind.NAME and text[token.position] == '"')
    return [tokens[position].text for position in quoted if _is_value(tokens, position)]


def _is_value(tokens: list[Token], position: int) -> bool:
    if position == 0 or tokens[position + 1].text == ".":
        return False
    before = tokens[position - 1]
    if before.kind is Kind.KEYWORD:
        return before.text in {"LIKE", "ESCAPE"}
    return before.text in _BEFORE_A_VALUE or (before.text in {"(", ","} and _is_in_list(tokens, position))


def _is_in_list(tokens: list[Token], position: int) -> bool:
    """Return whether the parenthesis around *position* opens the list of IN."""
    depth = 0
    for index in range(position - 1, 0, -1):
        if tokens[index].text == ")" and tokens[index].kind is Kind.SYMBOL:
            depth += 1
        elif tokens[index].text == "(" and tokens[index].kind is Kind.SYMBOL:
            if depth == 0:
                return tokens[index - 1].kind is Kind.KEYWORD and tokens[index - 1].text == "IN"
            depth -= 1
    return False
