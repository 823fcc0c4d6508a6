"""ATOM documents: entries, feeds of them, errors."""

from dataclasses import dataclass
from urllib.parse import urlencode

from busway_broker.admin.xml import escape, join, tag, text_tag
from busway_broker.entity_fields import iso_time

_ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
_API_VERSION = "2021-05"


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One thing in an ATOM document.

    Shape:  path is the path of its address, content the XML of its description.
    Units:  milliseconds since 1970 UTC.
    """

    path: str
    title: str
    content: str
    published: int
    updated: int


def write_entry(entry: Entry, base: str, author: str, attributes: str = _ATOM) -> str:
    """Return an entry; *base* is the address of the namespace."""
    address = escape(f"{base}/{entry.path}?api-version={_API_VERSION}")
    return tag(
        "entry",
        join(
            (
                f"<id>{address}</id>",
                text_tag("title", entry.title, 'type="text"'),
                text_tag("published", iso_time(entry.published)),
                text_tag("updated", iso_time(entry.updated)),
                tag("author", text_tag("name", author)),
                f'<link rel="self" href="{address}"/>',
                tag("content", entry.content, 'type="application/xml"'),
            )
        ),
        attributes,
    )


def write_feed(title: str, entries: list[Entry], skip: int, top: int, *, base: str, author: str, now: int) -> str:
    """Return *top* of the *entries* after those to *skip*, with a link to the next ones if there are any."""
    shown, following = entries[skip : skip + top], skip + top
    self_link = _address(base, title, skip, top)
    next_link = _address(base, title, following, top) if following < len(entries) else None
    return tag(
        "feed",
        join(
            (
                text_tag("title", title, 'type="text"'),
                f"<id>{self_link}</id>",
                text_tag("updated", iso_time(now)),
                f'<link rel="self" href="{self_link}"/>',
                None if next_link is None else f'<link rel="next" href="{next_link}"/>',
                *(write_entry(entry, base, author, "") for entry in shown),
            )
        ),
        _ATOM,
    )


def write_error(status: int, detail: str) -> str:
    """Return the document of an error response."""
    return tag("Error", text_tag("Code", str(status)) + text_tag("Detail", detail))


def _address(base: str, path: str, skip: int, top: int) -> str:
    query = urlencode({"api-version": _API_VERSION, "$skip": skip, "$top": top})
    return escape(f"{base}/{path}?{query}")
