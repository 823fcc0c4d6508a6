"""Character sets: strict conversion of text from one to another."""

import codecs
import re

from shared.errors import MessageRejected

# These are escapes for other characters, or depend on the machine.
_NO_CHARSETS = frozenset(
    ("idna", "punycode", "raw_unicode_escape", "unicode_escape", "undefined", "mbcs", "oem", "utf-7", "palmos")
)

_LONGEST_DECLARATION = 1000
_PARAMETER = re.compile(r';\s*charset\s*=\s*"?([^\s;"]+)', re.IGNORECASE)
_DECLARATION = re.compile(r"""(?:\xef\xbb\xbf)?<\?xml\s[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")


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


def charset_in(content_type: str | None, content: bytes = b"") -> str | None:
    """
    Return the character set that a content type names, or for XML the declaration in *content*; None without one.

    Raises: MessageRejected for a name that is unknown.
    """
    named = _PARAMETER.search(content_type or "")
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if named is None and media_type.endswith(("/xml", "+xml")):
        named = _DECLARATION.match(content[:_LONGEST_DECLARATION].decode("latin-1"))
    if named is None:
        return None
    try:
        return charset(named[1])
    except ValueError as error:
        raise MessageRejected("WrongContentType", "names an unknown character set") from error


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
