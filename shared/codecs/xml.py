"""
XML 1.0, read as values that JSON has.

An element becomes a mapping. An attribute has @ before its name. Text beside attributes is #text. Elements with the
same name become a list. An element with only text is that text. All values are texts; numbers are not recognized. Names
keep their prefixes. Text between elements is rejected, because its place would be lost. Comments and processing
instructions are left out.

A document type declaration is rejected, and so are entities other than the five of XML: nothing is fetched, and nothing
expands.
"""

import codecs
from collections.abc import Collection, Mapping
from typing import Never
from xml.parsers import expat

from shared.codecs.plain import DEEPEST, Plain, too_deep
from shared.codecs.text import recode
from shared.errors import MessageRejected

NOT_XML = "NotXml"
_BLANKS = " \t\r\n"
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_TEXT = "#text"


class Xml:
    """XML, `application/xml`; it is only read."""

    name = "xml"
    media_type = "application/xml"

    def __init__(self, lists: Collection[str] = ()) -> None:
        """Make lists of the elements named *lists*, also of a single one."""
        self._lists = frozenset(lists)

    def claims(self, media_type: str) -> bool:
        """Return whether a media type is of XML (RFC 7303)."""
        return media_type in {"application/xml", "text/xml"} or media_type.endswith("+xml")

    def read(self, content: bytes) -> Plain:
        """Return the document in *content* as a mapping with its root element; raises MessageRejected."""
        return self._read(content, expat.ParserCreate())

    def read_text(self, content: bytes, charset: str) -> Plain:
        """
        Return the document in *content*, which is in *charset* whatever it declares, unless it begins with a mark.

        Source: RFC 7303, 3: a byte order mark comes first, then the charset of the content type, then the declaration.
        """
        for mark, marked in _MARKS.items():
            if content.startswith(mark):
                charset = marked
                break
        return self._read(recode(content, charset, "utf-8"), expat.ParserCreate("utf-8"))

    def _read(self, content: bytes, parser: expat.XMLParserType) -> Plain:
        document = _Document(self._lists)
        parser.buffer_text = True
        parser.StartElementHandler = document.start
        parser.EndElementHandler = document.end
        parser.CharacterDataHandler = document.characters
        parser.StartDoctypeDeclHandler = document.refuse
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            problem = f"line {error.lineno} column {error.offset + 1}: {expat.ErrorString(error.code)}"
            raise MessageRejected(NOT_XML, f"body is not XML, {problem}") from error
        except (ValueError, LookupError) as error:
            # An encoding that is unknown to Python, or has several bytes per character.
            raise MessageRejected(NOT_XML, "body is XML in an unsupported encoding") from error
        return document.root

    def write(self, _: Plain) -> Never:
        """Raise ValueError: values do not have the names of elements."""
        raise ValueError("XML is only read")


class _Document:
    """The elements that are open, from the root."""

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
