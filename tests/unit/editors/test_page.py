from tests.editors_page import ROOT, missing, page


def test_every_editor_has_a_golden_case() -> None:
    assert missing() == []


def test_the_page_of_editors_is_up_to_date() -> None:
    written = (ROOT / "docs/editors.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m tests.editors_page > docs/editors.md"
