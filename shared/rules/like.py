"""The patterns of LIKE."""

import functools
import re
from collections.abc import Callable

from shared.rules.lexer import MAX_CHARACTERS

# Returns None for a text that does not match.
type Test = Callable[[str], object]


@functools.lru_cache(maxsize=512)
def matcher(pattern: str, escape: str | None) -> Test:
    """
    Return a test whether a whole text matches *pattern*: % is any run of characters, _ any one; case-sensitive.

    Its time is bounded by length of the text times length of the pattern, whatever the pattern. A message may contain
    the pattern: it must not be longer than one in a rule.
    Raises:  ValueError for a longer one, and for an escape that is not one character, or that escapes nothing.
    """
    if len(pattern) > MAX_CHARACTERS:
        raise ValueError(f"one of at most {MAX_CHARACTERS} characters")
    if escape is not None and len(escape) != 1:
        raise ValueError("an ESCAPE of one character")
    pieces = _pieces(pattern, escape)
    # After a %, the leftmost match of a piece is as good as any later one: atomic groups never backtrack.
    first, *middle = pieces
    last = [".*" + middle.pop()] if middle else []
    expression = first + "".join(f"(?>.*?{piece})" for piece in middle) + "".join(last)
    return re.compile(expression, re.DOTALL).fullmatch


def _pieces(pattern: str, escape: str | None) -> list[str]:
    """Return the regular expressions of the pieces between the % signs."""
    pieces = [""]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("a character after the ESCAPE at the end of the pattern")
            pieces[-1] += re.escape(escaped)
        elif character == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if character == "_" else re.escape(character)
    return pieces
