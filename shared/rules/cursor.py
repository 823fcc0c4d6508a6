"""A position in the tokens of a rule."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.rules.errors import RuleSyntaxError
from shared.rules.lexer import Kind, Token, tokens_of

MAX_CHARACTERS = 1024
MAX_NESTING = 32


class Cursor:
    """A position in the tokens of one rule, with its nesting depth and the error for an unexpected token."""

    def __init__(self, text: str) -> None:
        """Start at the beginning of *text*; a RuleSyntaxError if it is too long or has no tokens."""
        if len(text) > MAX_CHARACTERS:
            raise RuleSyntaxError(
                text, MAX_CHARACTERS, expected=f"at most {MAX_CHARACTERS} characters", seen=f"{len(text)}"
            )
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
