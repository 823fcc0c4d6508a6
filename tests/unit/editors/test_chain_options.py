"""Options of chain and verify-chain: which are accepted, and which are refused at load."""

from typing import Any

import pytest
from pydantic import ValidationError

from shared.errors import ConfigError
from shared.tasks.models import TaskFile
from shared.tasks.steps import STEPS
from tests.fakes import task_facts
from tests.keys import jwks, made, settings

STORE = {"key": "k", "store": {"setting": "STATE"}}


EVERYTHING = [{"target": {"connection": "east", "queue": "orders"}}]


def task(source: Any, *steps: dict[str, Any], routes: Any = EVERYTHING) -> Any:
    rejects = {"connection": "west", "queue": "rejected"}
    document = {"task": "t", "source": source, "editors": list(steps), "routes": routes, "rejects": rejects}
    return TaskFile.model_validate(document)


def chain(sequence: Any = "session", **options: Any) -> Any:
    return {"chain": {**STORE, "sequence": sequence, **options}}


SESSION = {"connection": "west", "queue": "orders", "sessions": True}


QUEUE = {"connection": "west", "queue": "orders"}


HUB = {"connection": "west", "hub": "orders", "consumer_group": "copy"}


@pytest.mark.parametrize(
    ("source", "step"),
    [
        (SESSION, chain()),
        (HUB, chain("partition")),
        (HUB, chain("partition_key")),
        ({**HUB, "partitions": [0]}, chain("entity")),
        (QUEUE, chain("entity", single_instance=True)),
        (QUEUE, chain({"property": "customer"}, single_instance=True)),
        (SESSION, {"verify-chain": STORE}),
        (HUB, {"verify-chain": STORE}),
        (QUEUE, {"verify-chain": {**STORE, "single_instance": True}}),
    ],
)
def test_valid_options_are_accepted(source: Any, step: dict[str, Any]) -> None:
    assert task(source, step)
    assert task(source, {"filter": "a = 1"}, step)


@pytest.mark.parametrize(
    ("source", "steps", "problem"),
    [
        (QUEUE, [chain()], "is session, expected a source with sessions"),
        (HUB, [chain()], "is session"),
        (SESSION, [chain("partition")], "expected a hub as the source"),
        (QUEUE, [chain("partition_key")], "expected a hub as the source"),
        (SESSION, [chain("entity")], "covers a whole entity, expected `session`, or single_instance: true"),
        (QUEUE, [chain({"property": "customer"})], "covers a whole entity"),
        (HUB, [chain("entity", single_instance=True)], "covers several partitions"),
        ({**HUB, "partitions": [0, 1]}, [chain("entity")], "covers several partitions"),
        (QUEUE, [{"verify-chain": STORE}], r"editors\[0\].verify-chain: the source keeps no order"),
        (SESSION, [{"encrypt": {"key": "k"}}, chain()], r"editors\[1\].chain comes after encrypt"),
        (SESSION, [chain(), {"filter": "a = 1"}], r"editors\[0\].chain comes before filter, which withholds"),
        (SESSION, [chain(), {"verify": {"key": "k", "on_failure": "drop"}}], "comes before verify"),
        (SESSION, [chain(), {"transform": {"expression": "a"}}], "comes before transform, which changes the content"),
        (SESSION, [chain(), {"split": {}}], "comes before split, which replaces the linked messages"),
    ],
)
def test_invalid_options_are_refused(source: Any, steps: Any, problem: str | None) -> None:
    with pytest.raises(ValidationError, match=problem):
        task(source, *steps)


def test_a_chain_whose_messages_take_different_routes_is_refused() -> None:
    with pytest.raises(ValidationError, match="the first route has a condition"):
        task(SESSION, chain(), routes=[{"when": "a = 1", **EVERYTHING[0]}, *EVERYTHING])


@pytest.mark.parametrize("verb", ["chain", "verify-chain"])
def test_a_missing_app_setting_for_the_store_stops_the_start(verb: str) -> None:
    options = {**STORE, **({"sequence": "session"} if verb == "chain" else {})}
    step = STEPS[verb].model_validate({verb: options})
    for value in ({}, {"STATE": "no connection string"}, {"STATE": "file:/no/such/folder/state.db"}):
        with pytest.raises(ConfigError) as raised:
            step.editor(task_facts({**settings(k=jwks(made("oct"))), **value}))
        assert raised.value.problems[0].path == f"task copy: {verb}.store: app setting STATE"
