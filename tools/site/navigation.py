"""
The pages of the site, and its navigation.

`python tools/site/navigation.py FOLDER` copies all pages and what they link to into a folder. MkDocs calls `on_config`,
which takes the navigation from docs/README.md: a tab for each of its sections, so that one list leads to every page.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
INDEX = "docs/README.md"
_FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(?:#[^)\s]*)?\)")

type Entry = str | dict[str, list[Entry]]


def links(page: str, text: str | None = None) -> Iterator[str]:
    """Yield the files to which a page, or this *text* of it, links, by their paths in the repository, in order."""
    whole = (ROOT / page).read_text(encoding="utf-8") if text is None else text
    for link in _LINK.findall(_FENCE.sub("", whole)):
        if not re.match(r"[a-z]+:", link):
            yield os.path.normpath(PurePosixPath(page).parent / link)


def files() -> list[str]:
    """Return the README, all pages of docs/, and everything to which these link, directly or not."""
    listing = subprocess.run(
        ["git", "ls-files", "README.md", "docs/*.md"],  # noqa: S607 - the git on the PATH
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = dict.fromkeys(file for file in listing.splitlines() if (ROOT / file).exists())
    waiting = list(found)
    while waiting:
        page = waiting.pop()
        new = [file for file in links(page) if file not in found and (ROOT / file).is_file()]
        found |= dict.fromkeys(new)
        waiting += [file for file in new if file.endswith(".md")]
    return list(found)


def navigation() -> list[Entry]:
    """Return the tabs, each with its pages; a page of a folder with an index has the pages of that folder below it."""
    sections = re.findall(r"^## (.+)\n((?:(?!^## ).*\n?)*)", (ROOT / INDEX).read_text(encoding="utf-8"), re.MULTILINE)
    listed = {"README.md"}
    tabs: list[Entry] = ["README.md"]
    for title, text in sections:
        entries: list[Entry] = []
        for file in dict.fromkeys(links(INDEX, text)):
            if file in listed:
                continue
            below = _below(file)
            listed |= {file, *below}
            entries.append({_title(file): [file, *below]} if below else file)
        tabs.append({title: entries})
    return tabs


def _below(file: str) -> list[str]:
    """Return the other pages of the folder of which *file* is the index: in its order, then by name."""
    path = PurePosixPath(file)
    if path.name != "README.md" or path.parent.parts[:1] != ("docs",):
        return []
    folder = sorted(str(page.relative_to(ROOT)) for page in (ROOT / path.parent).glob("*.md"))
    ordered = [page for page in dict.fromkeys(links(file)) if page in folder]
    return [page for page in dict.fromkeys([*ordered, *folder]) if page != file]


def _title(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def on_config(config: Any) -> Any:  # noqa: ANN401 - MkDocs has no types
    """Give MkDocs the navigation."""
    rest = [file for file in files() if file.endswith(".md")]
    tabs = navigation()
    known = set(_pages(tabs))
    others: list[Entry] = [file for file in rest if file not in known and file != INDEX]
    config["nav"] = [*tabs, {"More": [INDEX, *others]}]
    return config


def _pages(entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            for below in entry.values():
                yield from _pages(below)


def copy(folder: Path) -> None:
    """Copy all pages, and the files to which they link, into *folder*."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in files():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, folder / file)


if __name__ == "__main__":
    copy(Path(sys.argv[1]))
