"""The remedies of the reasons that Busway gives, and the page that lists them."""

import re
from pathlib import Path

import pytest

from shared.ends import look_error
from shared.ends.conditions import _CAUSES, REACTIONS
from shared.errors import MessageRejected
from shared.remedies import OTHERWISE, REMEDIES, remedy_for
from shared.status.merge import NO_INSTANCE

PAGE = Path(__file__).parents[3] / "docs/status.md"
REASONS = [
    *(reaction.text for reaction in REACTIONS if reaction.error is not MessageRejected),
    *_CAUSES.values(),
    *(meaning for _, meaning in look_error._NAMED if "forwards" not in meaning),
    "east/orders: does not answer, TimeoutError",
    f"messages wait, and {NO_INSTANCE} since 2026-11-20T10:00:00Z",
    "messages wait, and no instance has taken a message",
    "the limit of rejects in a row",
    "partition 1 has been read to sequence number 90, and ends at 3: the hub was created again, or its namespace",
    "journal: the storage account cannot be reached, ServiceRequestError",
]


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_has_a_remedy(reason: str) -> None:
    assert remedy_for(reason) is not OTHERWISE


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        (
            "east/payments: the target refuses to take messages, it is disabled: MessagingEntityDisabledError",
            "disabled",
        ),
        ("east/payments: the target refuses to take messages, its quota is exceeded: amqp:resource-limit", "full"),
        ("east/orders: the firewall of the namespace does not let Busway in (admit its addresses)", "firewall"),
        ("east/orders: the target refuses to take messages, the right to send is missing", "rights"),
        ("west/orders: it does not exist, or there is no permission to look into it", "missing"),
        ("editor validate: KeyError", "other"),
    ],
)
def test_a_reason_has_its_own_remedy(reason: str, name: str) -> None:
    assert remedy_for(reason).name == name


def test_a_remedy_names_the_task() -> None:
    assert "busway rejects list copy;" in remedy_for("the limit of rejects in a row").of("copy")


def test_the_page_lists_every_remedy() -> None:
    names = re.findall(r"in metrics and alerts: ([^.]*)\.", PAGE.read_text(encoding="utf-8"))
    assert " ".join(names[0].split()).split(", ") == [remedy.name for remedy in (*REMEDIES, OTHERWISE)]
