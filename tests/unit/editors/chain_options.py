"""Options of the chain and verify-chain editors."""

from typing import Any

from shared.tasks.models import TaskFile

STORE = {"key": "k", "store": {"setting": "STATE"}}


EVERYTHING = [{"target": {"connection": "east", "queue": "orders"}}]


def task(source: Any, *steps: dict[str, Any], routes: Any = EVERYTHING) -> Any:
    rejects = {"connection": "west", "queue": "rejected"}
    document = {"task": "t", "source": source, "editors": list(steps), "routes": routes, "rejects": rejects}
    return TaskFile.model_validate(document)


def chain(sequence: Any = "session", **options: Any) -> Any:
    return {"chain": {**STORE, "sequence": sequence, **options}}
