"""The site's navigation leads to every page once, by the sections of docs/README.md."""

import runpy

from tests.architecture.imports import ROOT

SITE = runpy.run_path(str(ROOT / "tools/site/navigation.py"))


def test_the_tabs_are_those_that_a_reader_looks_for() -> None:
    assert [next(iter(tab)) for tab in SITE["navigation"]()[1:]] == [
        "Start",
        "Use",
        "Operate",
        "Reference",
        "Contribute",
    ]


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    pages = list(SITE["_pages"](SITE["navigation"]()))
    assert len(pages) == len(set(pages))
    written = {str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md")}
    assert written - set(pages) == {"docs/README.md"}


def test_the_copy_has_every_file_to_which_a_page_links() -> None:
    files = set(SITE["files"]())
    assert {"README.md", "ARCHITECTURE.md", "docs/images/dashboard-light.png", "infra/modules/alerts.yaml"} <= files
    assert [file for file in files if not (ROOT / file).is_file()] == []
