"""
XML 1.0 as JSON has it.

An element becomes a mapping: an attribute has @ before its name, text beside attributes or elements stands under
#text, elements of one name are a list, and an element that has text only is that text. All values are texts; nothing
is taken for a number. Names keep their prefixes. What JSON has no place for is rejected: text between elements, whose
place would be lost. Comments and processing instructions are left out.

There is no document type declaration and no entity but the five of XML, so that nothing is fetched and nothing
multiplies.
"""

from collections.abc import Collection, Mapping
from typing import Never
from xml.parsers import expat

from shared.codecs.plain import DEEPEST, Plain, too_deep
from shared.errors import MessageRejected

NOT_XML = "NotXml"
_BLANKS = " \t\r\n"
_TEXT = "#text"


class Xml:
    """XML, `application/xml`; it is only read."""

    name = "xml"
    media_type = "application/xml"

    def __init__(self, lists: Collection[str] = ()) -> None:
        """Make lists of the elements named *lists*, also where there is one."""
        self._lists = frozenset(lists)

    def claims(self, media_type: str) -> bool:
        """Tell whether a media type is of XML (RFC 7303)."""
        return media_type in {"application/xml", "text/xml"} or media_type.endswith("+xml")

    def read(self, content: bytes) -> Plain:
        """Return the document that fills *content* as a mapping with its root element."""
        document = _Document(self._lists)
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = document.start
        parser.EndElementHandler = document.end
        parser.CharacterDataHandler = document.characters
        parser.StartDoctypeDeclHandler = document.refuse
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            told = f"line {error.lineno} column {error.offset + 1}: {expat.ErrorString(error.code)}"
            raise MessageRejected(NOT_XML, f"body is not XML, {told}") from error
        except (ValueError, LookupError) as error:
            # An encoding that Python does not know, or of several bytes.
            raise MessageRejected(NOT_XML, "body is XML in an unsupported encoding") from error
        return document.root

    def write(self, _: Plain) -> Never:
        """Raise ValueError: what the elements were called is not in JSON."""
        raise ValueError("XML is only read")


class _Document:
    """The elements that are open, from the root on."""

    def __init__(self, lists: frozenset[str]) -> None:
        self._lists = lists
        self.root: dict[str, Plain] = {}
        self._open: list[dict[str, Plain]] = [self.root]
        self._texts: list[list[str]] = [[]]

    def start(self, _: str, attributes: Mapping[str, str]) -> None:
        if len(self._open) > DEEPEST:
            raise too_deep()
        self._open.append({f"@{each}": value for each, value in attributes.items()})
        self._texts.append([])

    def characters(self, text: str) -> None:
        self._texts[-1].append(text)

    def end(self, name: str) -> None:
        element = self._open.pop()
        text = "".join(self._texts.pop())
        parent = self._open[-1]
        if any(not each.startswith("@") for each in element):
            if text.strip(_BLANKS):
                raise MessageRejected(NOT_XML, "body is XML with text between elements, which JSON cannot represent")
        elif text and element:
            element[_TEXT] = text
        value: Plain = element or text
        if name not in parent:
            parent[name] = [value] if name in self._lists else value
        elif type(parent[name]) is list:
            parent[name].append(value)
        else:
            parent[name] = [parent[name], value]

    def refuse(self, *_: object) -> None:
        raise MessageRejected(NOT_XML, "body is XML with a document type declaration, which is not accepted")
