"""Writes all files of the reference that have changed, and removes pages of editors that are gone; `make reference`."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from cli.commands.schema import FILES, text
from tools.reference.app_settings import settings_page
from tools.reference.editor_pages import editor_pages
from tools.reference.file_pages import check_page, file_pages, index

ROOT = Path(__file__).parents[2]
EDITORS, FOLDER = ROOT / "docs/editors", ROOT / "docs/reference"


def reference() -> Mapping[Path, str]:
    """Return the text of every file that is generated."""
    return dict(_files())


def _files() -> Iterator[tuple[Path, str]]:
    yield from ((EDITORS / name, page) for name, page in editor_pages())
    yield from ((FOLDER / name, page) for name, page in file_pages())
    yield FOLDER / "settings.md", settings_page()
    yield FOLDER / "checks.md", check_page()
    yield FOLDER / "README.md", index()
    yield ROOT / "docs/status.schema.json", text("status")
    yield from ((ROOT / f"config/{what}.schema.json", text(what)) for what in FILES)


def outdated() -> list[Path]:
    """Return the files that differ from what is generated, and the pages in its folders that nothing generates."""
    expected = reference()
    different = [file for file, page in expected.items() if not file.exists() or file.read_text("utf-8") != page]
    return different + [file for folder in (EDITORS, FOLDER) for file in folder.glob("*") if file not in expected]


def main() -> None:
    """Bring all files up to date."""
    expected = reference()
    for file in outdated():
        if file in expected:
            file.parent.mkdir(exist_ok=True)
            file.write_text(expected[file], encoding="utf-8")
        else:
            file.unlink()
        sys.stdout.write(f"{file.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
