"""
JSON as the emulators of Microsoft read it: with comments and trailing commas.

Source: System.Text.Json with `JsonCommentHandling.Skip` and `AllowTrailingCommas`; files of public repositories.
"""

import json
import re
from collections.abc import Callable

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n\r]*|/\*.*?\*/', re.DOTALL)
_TRAILING_COMMA = re.compile(r',(?=\s*[}\]])|"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_A_LINE = re.compile(r"[^\n\r]")


def read_json(content: bytes, object_pairs_hook: Callable[[list[tuple[str, object]]], object]) -> object:
    """Return the value in UTF-8, UTF-16 or UTF-32; a ValueError names the line and column of the file."""
    text = content.decode(json.detect_encoding(content)).removeprefix("\ufeff")
    plain = _TOKEN.sub(lambda match: match[0] if match[0].startswith('"') else _blank(match[0]), text)
    plain = _TRAILING_COMMA.sub(lambda match: " " if _follows_a_value(match) else match[0], plain)
    return json.loads(plain, object_pairs_hook=object_pairs_hook)


def _follows_a_value(comma: re.Match[str]) -> bool:
    end = comma.start() - 1
    while end >= 0 and comma.string[end].isspace():
        end -= 1
    return comma[0] == "," and end >= 0 and comma.string[end] not in "{[,:"


def _blank(comment: str) -> str:
    """Return blanks in the place of a comment, so that errors name the right line and column."""
    return _NOT_A_LINE.sub(" ", comment)
