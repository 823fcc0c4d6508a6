"""
Text of messages in log lines and on terminals.

A sender chooses ids, names and bodies: a line break in one would forge a line, and a terminal acts on control
characters and on marks of writing direction.
"""

import json


def printable(text: str) -> str:
    """Return *text* with an escape in place of each character that is not shown, or changes how others are shown."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else each.encode("unicode_escape").decode() for each in text])


def json_line(document: object) -> str:
    """Return *document* as JSON in one line, with such characters as JSON escapes them."""
    return _escaped(json.dumps(document, ensure_ascii=False))


def json_lines(document: object) -> str:
    """Return *document* as JSON in indented lines, likewise."""
    return "\n".join(map(_escaped, json.dumps(document, ensure_ascii=False, indent=2).split("\n")))


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else json.dumps(each)[1:-1] for each in text])
