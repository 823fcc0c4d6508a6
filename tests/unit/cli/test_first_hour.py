"""The answers of the first hour: nothing in them must not be sent back."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from cli.first_hour.__main__ import public
from cli.first_hour.steps import SCRIPT, STEPS, most_holds

PAGE = (Path(__file__).parents[3] / "docs/first-hour.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/subscriptions/00000000-0000-4000-8000-00000000000a/resourceGroups/g", "/subscriptions/…/resourceGroups/g"),
        ("Endpoint=sb://x;SharedAccessKey=azE=;EntityPath=q", "Endpoint=sb://x;SharedAccessKey=…;EntityPath=q"),
        ("https://a.blob.core.windows.net/x?sv=1&sig=abc%3D&se=2", "https://a.blob.core.windows.net/x?sv=1&sig=…&se=2"),
        ("\x1b[31mred", public("\x1b[31mred")),
    ],
)
def test_an_answer_has_no_ids_and_no_keys(text: str, shown: str) -> None:
    assert public(text) == shown
    assert "\x1b" not in public(text)


@pytest.mark.parametrize(
    ("minutes", "hold", "deliveries"), [(11, 15, 0), (20, 15, 1), (60, 15, 4), (60, 50, 1), (20, 50, 0)]
)
def test_each_hold_of_an_outage_may_cost_a_delivery(minutes: int, hold: int, deliveries: int) -> None:
    assert most_holds(minutes, timedelta(minutes=hold)) == deliveries


def test_the_page_has_every_step_with_its_command_in_the_same_order() -> None:
    rows = re.findall(r"^\| (\d+) \| ([^|`:]+)(?:: `([^`]+)`)? \|", PAGE, re.MULTILINE)
    commands = ["" if step.command.startswith(SCRIPT) else step.command for step in STEPS]
    assert rows == [(str(number), step.name, commands[number - 1]) for number, step in enumerate(STEPS, 1)]
    assert len(rows) == 10
