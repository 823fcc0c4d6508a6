"""`busway functions`: Azure knows the functions of a published app, or is asked to look again until it does."""

import json
from collections.abc import Sequence

import pytest

from cli.project.published_functions import App, await_functions
from shared.errors import TargetRefused, TargetUnavailable

APP = App("group", "app", "S")
TASKS = ("orders", "orders-lane-2")


class Azure:
    """A Resource Manager that knows the functions of *looks*, one look after the other; an error is an answer too."""

    def __init__(self, *looks: Sequence[str] | Exception) -> None:
        self.looks = list(looks)
        self.asked: list[str] = []

    def run(self, *arguments: str) -> str:
        self.asked.append(" ".join(arguments))
        if arguments[:3] == ("functionapp", "function", "list"):
            answer = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
            if isinstance(answer, Exception):
                raise answer
            return json.dumps([{"name": f"app/{each}"} for each in answer])
        return "/subscriptions/S/resourceGroups/group/providers/Microsoft.Web/sites/app\n"


def looked(azure: Azure, seconds: float = 60) -> tuple[bool, list[str], float]:
    """Return whether all are known, what was said, and the seconds that it took."""
    said: list[str] = []
    slept: list[float] = []
    is_known = await_functions(APP, TASKS, seconds, said.append, run=azure.run, sleep=slept.append)
    return is_known, said, sum(slept)


def test_azure_that_knows_the_placeholder_only_is_asked_to_sync_until_it_knows_all() -> None:
    """FN12: `host/default/sync` in a loop helps, the client's own request does not."""
    azure = Azure(["WarmUp"], TargetUnavailable("busy"), ["orders"], [*TASKS, "busway-minute"])
    assert looked(azure)[::2] == (True, 45)
    syncs = [each for each in azure.asked if each.startswith("rest --method post")]
    assert len(syncs) == 3
    assert syncs[0].endswith("/sites/app/host/default/sync?api-version=2024-04-01")
    assert azure.asked[0].endswith("--resource-group group --name app --subscription S --output json")


@pytest.mark.parametrize(
    ("known", "said", "seconds"),
    [
        (["WarmUp"], "app: Azure does not know orders, orders-lane-2; it knows WarmUp", 60),
        ([], "app: Azure does not know orders, orders-lane-2; it knows none", 60),
        (["busway-problem"], "app: it cannot start; the exceptions of its function busway-problem say why", 0),
    ],
)
def test_what_stays_unknown_is_named(known: Sequence[str], said: str, seconds: float) -> None:
    is_known, lines, slept = looked(Azure(known))
    assert (is_known, lines[-1], slept) == (False, said, seconds)


def test_a_refusal_ends_it_at_once() -> None:
    with pytest.raises(TargetRefused):
        looked(Azure(TargetRefused("AuthorizationFailed")))
