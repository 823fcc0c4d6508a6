"""The page in a browser: what a person sees on a phone and on a desktop."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import CONTRAST, CUT, Tab, running_browser
from tests.jobs.sample_page import HOSTILE, sample_page

WIDTHS = (360, 1280)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with running_browser(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(sample_page(), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_at_the_right(tab: Tab, page: Path, width: int) -> None:
    tab.open(page, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert tab.evaluate(CUT.replace("WIDTH", str(width))) == []
    assert tab.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_all_text_can_be_read(tab: Tab, page: Path, width: int, dark: bool) -> None:
    tab.open(page, width=width, dark=dark)
    paper = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)")
    contrast, where = tab.evaluate(CONTRAST)
    assert contrast >= 4.5, where


def test_a_hostile_id_is_only_text(tab: Tab, page: Path) -> None:
    tab.open(page, width=1280)
    assert tab.evaluate("typeof window.hacked") == "undefined"
    assert tab.evaluate("document.querySelectorAll('script, img, [onload], [onerror]').length") == 0
    shown = tab.evaluate("[...document.querySelectorAll('#missing ~ .finding .id')].map(each => each.textContent)")
    assert shown[:4] == list(HOSTILE[:4])
    assert shown[4] == r"\u202etxt.exe\x1b[31m\x00"
    assert shown[5] == HOSTILE[5]
    assert shown[7] == "(no message id)"
    assert tab.evaluate("performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_the_figures_of_a_table_end_at_one_line(tab: Tab, page: Path, width: int) -> None:
    tab.open(page, width=width)
    tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    edges = tab.evaluate("""[...document.querySelectorAll('table')].map(table => {
      const ends = {};
      for (const cell of table.querySelectorAll('td.n')) {
        if (!cell.getBoundingClientRect().width) continue;
        const text = document.createRange();
        text.selectNodeContents(cell);
        const column = getComputedStyle(cell).display === 'flex' ? 'card' : cell.cellIndex;
        (ends[column] ??= new Set()).add(Math.round(text.getBoundingClientRect().right));
      }
      return Object.values(ends).map(each => each.size);
    })""")
    assert [size for sizes in edges for size in sizes if size != 1] == []
    assert sum(len(sizes) for sizes in edges) > 10
    styles = tab.evaluate(
        "[...new Set([...document.querySelectorAll('td.n')].map(each => getComputedStyle(each).fontVariantNumeric))]"
    )
    assert all("tabular-nums" in style for style in styles)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_findings_come_first(tab: Tab, page: Path, width: int) -> None:
    tab.open(page, width=width)
    tops = tab.evaluate(
        "['.verdict', '#findings', '#evidence', '#trend', '#tasks']"
        ".map(each => document.querySelector(each).getBoundingClientRect().top)"
    )
    assert tops == sorted(tops)


def test_a_click_opens_the_records_of_a_message(tab: Tab, page: Path) -> None:
    tab.open(page, width=360)
    visible = "document.querySelector('.trace').checkVisibility()"
    assert tab.evaluate(visible) is False
    tab.evaluate("document.querySelector('.finding summary').click()")
    assert tab.evaluate(visible) is True


def test_the_trend_has_a_mark_and_a_bar_for_each_night(tab: Tab, page: Path) -> None:
    tab.open(page, width=360)
    marks = tab.evaluate("[...document.querySelectorAll('.trend > [title]')].map(each => each.textContent).join('')")
    assert marks == "✗✓✓✓✓✓✓✗✓·✓✓✓✓✗✓✓✓✓·✓✗✓✓✓✓✓✓✗✗"
    bars = tab.evaluate("[...document.querySelectorAll('.trend svg')].map(each => each.childElementCount)")
    assert bars == [marks.count("✗"), 30 - marks.count("·")]
    right, of_box = tab.evaluate(
        "['.trend svg:last-of-type rect:last-child', '.trend']"
        ".map(each => document.querySelector(each).getBoundingClientRect().right)"
    )
    assert of_box - 12 < right <= of_box
