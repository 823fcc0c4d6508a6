"""
Reading XML from clients that are not trusted, and writing XML.

defusedxml refuses a document type, and with it every declared entity: nothing expands, nothing is fetched.
Depth and number of elements are bounded here, the length of the text by the caller.
"""

import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

MAX_DEPTH = 32
MAX_ELEMENTS = 20_000

# The characters that XML 1.0 cannot contain.
_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class BadXml(ValueError):
    """The text is not XML, or not accepted; the message says why."""


@dataclass(slots=True)
class Element:
    """An element; names are local names, as prefixes and namespaces differ from client to client."""

    name: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    text: str = ""

    def child(self, name: str) -> "Element | None":
        """Return the first child of this name, None if it does not exist or is marked as nil."""
        found = next((element for element in self.children if element.name == name), None)
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
    """Return the root of a document; BadXml for text that is not XML or exceeds a limit."""
    builder = _Builder()
    parser = DefusedXMLParser(target=builder, forbid_dtd=True)
    try:
        parser.feed(text)
        parser.close()
    except DefusedXmlException as error:
        raise BadXml("the body has a document type, expected elements only") from error
    except (ParseError, LookupError, ValueError) as error:
        if isinstance(error, BadXml):
            raise
        raise BadXml(f"the body is not XML: {error}") from error
    if builder.root is None:
        raise BadXml("the body is empty")
    return builder.root


class _Builder:
    """Builds the elements that a parser reports; BadXml for too many."""

    def __init__(self) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._elements = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if len(self._open) >= MAX_DEPTH or self._elements > MAX_ELEMENTS:
            raise BadXml(f"the body has more than {MAX_ELEMENTS} elements, or more than {MAX_DEPTH} within each other")
        element = Element(_local(name), {_local(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def end(self, _: str) -> None:
        self._open.pop()

    def data(self, text: str) -> None:
        self._open[-1].text += text

    def close(self) -> None:
        pass


def _local(name: str) -> str:
    """Return a name without its namespace, which is in braces before it."""
    return name.rpartition("}")[2]


def tag(name: str, content: str, attributes: str = "") -> str:
    """Return an element as text; *content* and *attributes* are XML already."""
    head = f"{name} {attributes}" if attributes else name
    return f"<{head}>{content}</{name}>"


def text_tag(name: str, text: str, attributes: str = "") -> str:
    """Return an element with *text* as its content, escaped."""
    return tag(name, html.escape(_UNWRITABLE.sub("\ufffd", text), quote=False), attributes)


def escape(text: str) -> str:
    """Return text for the value of an attribute; characters that XML cannot contain become U+FFFD."""
    return html.escape(_UNWRITABLE.sub("\ufffd", text))


def join(parts: Iterable[str | None]) -> str:
    """Return the parts joined, without those that are None."""
    return "".join(part for part in parts if part is not None)
