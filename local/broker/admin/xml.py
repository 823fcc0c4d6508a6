"""
XML from strangers, and XML for them.

A document type is refused, and with it every entity that could be declared: nothing expands and nothing is fetched.
Depth and number of elements are bounded; whoever receives the text bounds its length.
"""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.parsers import expat

MAX_DEPTH = 32
MAX_ELEMENTS = 20_000

_SEPARATOR = " "
# What XML 1.0 has no way to write.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class BadXml(ValueError):
    """The text is no XML that is taken here; the message says where."""


@dataclass(slots=True)
class Element:
    """An element; names are local names, as prefixes and namespaces differ from client to client."""

    name: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def child(self, name: str) -> "Element | None":
        """Return the first child of this name; one that says it is nil is none."""
        found = next((each for each in self.children if each.name == name), None)
        return None if found is None or found.attributes.get("nil") == "true" else found

    def child_text(self, name: str) -> str | None:
        """Return the text of the first child of this name."""
        found = self.child(name)
        return None if found is None else found.text

    @property
    def type(self) -> str:
        """Return its xsi:type without the prefix."""
        return self.attributes.get("type", "").rpartition(":")[2]


def read_xml(text: bytes) -> Element:
    """Return the root of a document; BadXml if there is none, or more in it than is taken."""
    return _Reader().read(text)


class _Reader:
    def __init__(self) -> None:
        self._open: list[Element] = []
        self._root: Element | None = None
        self._elements = 0
        parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_document_type
        parser.EntityDeclHandler = self._refuse_document_type
        parser.ExternalEntityRefHandler = self._refuse_document_type
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        self._parser = parser

    def read(self, text: bytes) -> Element:
        try:
            self._parser.Parse(text, True)
        except (expat.ExpatError, LookupError, ValueError) as error:
            if isinstance(error, BadXml):
                raise
            raise BadXml(f"the body is not XML: {error}") from error
        if self._root is None:
            raise BadXml("the body is empty")
        return self._root

    def _refuse_document_type(self, *_: object) -> int:
        raise BadXml(f"line {self._parser.CurrentLineNumber}: a document type is not taken, expected elements only")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if len(self._open) >= MAX_DEPTH or self._elements > MAX_ELEMENTS:
            raise BadXml(
                f"line {self._parser.CurrentLineNumber}: more than {MAX_DEPTH} elements deep or {MAX_ELEMENTS} in all"
            )
        element = Element(_local(name), {_local(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        self._open[-1].text += text


def _local(name: str) -> str:
    return name.rpartition(_SEPARATOR)[2]


def tag(name: str, content: str, attributes: str = "") -> str:
    """Return an element around *content* that is XML already; likewise the attributes."""
    head = f"{name} {attributes}" if attributes else name
    return f"<{head}>{content}</{name}>"


def text_tag(name: str, text: str, attributes: str = "") -> str:
    """Return an element with *text* in it."""
    return tag(name, html.escape(_UNWRITABLE.sub("\ufffd", text), quote=False), attributes)


def escape(text: str) -> str:
    """Return text as it stands in an attribute; characters that XML cannot write become the replacement character."""
    return html.escape(_UNWRITABLE.sub("\ufffd", text))


def join(parts: Iterable[str | None]) -> str:
    """Return the parts that are there, one after the other."""
    return "".join(part for part in parts if part is not None)
