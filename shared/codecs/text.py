"""Character sets: strict conversion of text from one to another."""

import codecs

from shared.errors import MessageRejected

# These are escapes for other characters, or depend on the machine.
_NO_CHARSETS = frozenset(
    ("idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined", "mbcs", "oem", "utf-7", "palmos")
)


def charset(name: str) -> str:
    """Return Python's name of a character set; ValueError for an unknown one."""
    try:
        found = codecs.lookup(name).name
        "".encode(found)
    except LookupError as error:
        raise ValueError(f"names the unknown character set {name}") from error
    if found in _NO_CHARSETS:
        raise ValueError(f"names {name}, which is not a character set")
    return found


def recode(content: bytes, before: str, after: str) -> bytes:
    """Return text in another character set; raises MessageRejected if one of the two lacks a character."""
    try:
        text = content.decode(before)
    except UnicodeError as error:
        at = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
        raise MessageRejected("NotText", f"body is not in the character set {before}{at}") from error
    try:
        return text.encode(after)
    except UnicodeError as error:
        at = f" at position {error.start}" if isinstance(error, UnicodeEncodeError) else ""
        raise MessageRejected("NotWritable", f"body has a character{at} that {after} does not have") from error
