from pathlib import Path

from tests.fidelity import rows, table

README = Path(__file__).parents[2] / "README.md"


def test_the_table_of_the_readme_is_what_happens():
    assert table() in README.read_text(encoding="utf-8"), (
        "run `python -m tests.fidelity` and put its table in the README"
    )


def test_busway_itself_changes_no_property_and_no_body():
    changed = [row for row in rows() if row.part in ("property", "body", "footer") and row.busway not in ("kept", "-")]
    assert changed == []
