"""Reads the orders of operators from the status container, for the pipelines of an app."""

from collections.abc import Mapping
from functools import partial

from shared.assembly.status import open_store, store_problem
from shared.clock import Clock
from shared.line.pause import Order, Pause
from shared.status.store import StatusStore
from shared.tasks.files import Configuration


def pauses(
    configuration: Configuration, settings: Mapping[str, str], clock: Clock | None = None
) -> Mapping[str, Pause]:
    """Return what pauses each task, by its name; empty without a place for orders."""
    if store_problem(configuration, settings) is not None:
        return {}
    opened: list[StatusStore] = []

    def store() -> StatusStore:
        # With the first order: the client belongs to the event loop of the batches.
        if not opened:
            opened.append(open_store(configuration, settings))
        return opened[0]

    async def read(task: str) -> Order:
        control = await store().control(task)
        if control is None or not control.paused:
            return Order.RUN
        return Order.GIVE_BACK if control.closed else Order.WAIT

    return {task.task: Pause(task.task, partial(read, task.task), clock) for task in configuration.tasks}
