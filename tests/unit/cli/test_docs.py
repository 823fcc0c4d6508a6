"""`busway docs`: each way to ask for a page, and what an error leads to."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from cli.pages import FOLDERS, Page, pages, text_of
from shared.remedies import OTHERWISE, REMEDIES
from shared.status.model import ATTENTION

ROOT = Path(__file__).parents[3]


def docs(*words: str) -> Result:
    return CliRunner().invoke(app, ["docs", *words])


@pytest.mark.parametrize(
    ("asked", "first_line"),
    [
        ("", "# Documentation"),
        ("runbook", "# Runbook"),
        ("docs/runbook.md", "# Runbook"),
        ("editors/route", "# route"),
        ("../editors/README.md", "# Editors"),
        ("runbook#alert-held", "### Alert: held"),
        ("docs/runbook.md#alert-held", "### Alert: held"),
        ("https://github.com/OWNER/busway/blob/main/docs/runbook.md#alert-held", "### Alert: held"),
        ("alert-held", "### Alert: held"),
        ("#alert-held", "### Alert: held"),
        ("Alert: held", "### Alert: held"),
    ],
)
def test_a_page_or_section_is_printed(asked: str, first_line: str) -> None:
    found = docs(*filter(None, [asked]))
    assert (found.exit_code, found.stdout.partition("\n")[0]) == (0, first_line)


def test_a_section_ends_where_the_next_begins_which_is_no_comment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert re.findall(r"^#+ .*", docs("alert-held").stdout, re.MULTILINE) == ["### Alert: held"]
    monkeypatch.setattr("cli.pages.ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    path = tmp_path / "docs/a.md"
    path.write_text("# A\n\n```sh\n# no heading\n```\n\nlast\n", encoding="utf-8")
    assert [section.anchor for section in Page(path).sections] == ["a"]


@pytest.mark.parametrize(
    ("asked", "place", "stderr"),
    [
        (("receiver with a higher epoch",), "troubleshooting#messages-do-not-arrive: ", ""),
        (("supplied", "offset"), "troubleshooting#messages-do-not-arrive: ", ""),
        (
            ("east/orders: the target refuses to take messages, it is disabled: MessagingEntityDisabledError",),
            "runbook#when-a-target-does-not-accept-messages: ",
            "No line has all of it",
        ),
        (("warning of order-lost in orders",), "reference/checks#warnings: ", "'order-lost'"),
    ],
)
def test_an_error_leads_to_the_lines_about_it(asked: tuple[str, ...], place: str, stderr: str) -> None:
    found = docs(*asked)
    assert found.exit_code == 0
    assert any(line.startswith(place) for line in found.stdout.splitlines())
    assert stderr in found.stderr


def test_an_item_of_a_list_is_found_whole_and_a_reason_with_a_remedy_gets_it_first() -> None:
    assert "--wait 330" in docs("another receiver has locked it").stdout
    found = docs("the target refuses to take messages, its quota is exceeded: amqp:resource-limit-exceeded")
    assert found.stdout.startswith("What to do: start the consumers of the target")


def test_words_of_many_lines_are_cut_and_unknown_words_are_an_error() -> None:
    found = docs("message")
    assert len(found.stdout.splitlines()) == 30
    assert re.fullmatch(r"and \d+ more lines: add words\n", found.stderr)
    found = docs("quux", "zap")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "'quux zap'" in found.stderr


def test_every_alert_state_and_remedy_has_its_entry() -> None:
    known = pages()
    alerts = yaml.safe_load((ROOT / "infra/modules/alerts.yaml").read_text(encoding="utf-8"))
    asked = {f"docs/runbook.md#{alert['runbook']}" for alert in alerts}
    asked |= {f"alert-{state}" for state in ATTENTION}
    remedies = " ".join(remedy.text for remedy in (*REMEDIES, OTHERWISE))
    asked |= set(re.findall(r"busway docs ([\w#-]+)", remedies))
    assert [link for link in sorted(asked) if text_of(link, known) is None] == []


def test_the_wheel_carries_the_pages_that_the_command_prints() -> None:
    assert f"PAGES = {FOLDERS}".replace("'", '"') in (ROOT / "setup.py").read_text(encoding="utf-8")
