"""The documentation that this installation carries: its pages, their sections, and the lines with some words."""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from busway import ROOT

# The wheel carries the pages of these folders (setup.py).
FOLDERS = ("docs", "docs/editors", "docs/patterns", "docs/reference")
_INDEX = "README"
_FEWEST_WORDS = 3
_LONG = 8
_ITEM = re.compile(r"\s*(-|\d+\.) ")
_MARKS = re.compile(r"[`*]|\[(?=[^\]]*\]\()|\]\([^)]*\)")


class Section(NamedTuple):
    """A heading with everything below it."""

    level: int
    anchor: str
    """The last part of a link to it."""
    text: str


class Page:
    """A page by its name, such as `runbook` or `editors/route`."""

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        self.text = path.read_text(encoding="utf-8")

    @cached_property
    def sections(self) -> list[Section]:
        """Its sections in order, each with those below it."""
        headings, offset, is_code = [], 0, False
        for line in self.text.splitlines(keepends=True):
            is_code ^= line.lstrip().startswith("```")
            if not is_code and (found := re.match(r"(#+) (.*)", line)):
                headings.append((len(found[1]), found[2], offset))
            offset += len(line)
        sections = []
        for number, (level, title, start) in enumerate(headings):
            ends = (place for other, _, place in headings[number + 1 :] if other <= level)
            sections.append(Section(level, anchor(title), self.text[start : next(ends, len(self.text))]))
        return sections

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield each line without its marks, after the section that it is in; an item of a list is one line."""
        place = self.name
        headings = {section.text.partition("\n")[0]: section.anchor for section in self.sections}
        for line in self._items():
            if line in headings:
                place = f"{self.name}#{headings[line]}"
            yield place, " ".join(_MARKS.sub("", line).replace("|", " ").split())

    def _items(self) -> Iterator[str]:
        """Yield each line, or the lines of an item of a list as one."""
        item = ""
        for line in self.text.splitlines():
            if item and line.startswith("  ") and not _ITEM.match(line):
                item += line
                continue
            if item:
                yield item
            item = line if _ITEM.match(line) else ""
            if not item:
                yield line
        if item:
            yield item


def longest_found(words: str, lines: list[tuple[str, str]]) -> str | None:
    """Return as much of *words* as one of *lines* has: all, three or more in a row, or else the rarest long word."""
    text = "\n".join(line for _, line in lines).lower()
    parts = words.lower().split()
    for length in range(len(parts), min(len(parts), _FEWEST_WORDS) - 1, -1):
        for start in range(len(parts) - length + 1):
            found = " ".join(parts[start : start + length])
            if found in text:
                return found
    long = [word for word in parts if len(word) >= _LONG and word in text]
    return min(long, key=text.count, default=None)


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def pages() -> list[Page]:
    """Return all pages, by name."""
    return [Page(path) for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]


def text_of(asked: str, known: list[Page]) -> str | None:
    """
    Return a page or a section, by its name or by a link to it as pages, alerts and log lines have them.

    The name of a section alone suffices if one page has it; None if there is no such page or section.
    """
    link, _, wanted = asked.partition("#")
    name = link.rpartition("docs/")[2].removesuffix(".md")
    while name.startswith("../"):
        name = name.removeprefix("../")
    page = None if wanted and not link else next((page for page in known if page.name == (name or _INDEX)), None)
    if page is None:
        alone = anchor(asked)
        texts = [section.text for page in known for section in page.sections if section.anchor == alone]
        return texts[0] if len(texts) == 1 else None
    if not wanted:
        return page.text
    return next((section.text for section in page.sections if section.anchor == wanted), None)
