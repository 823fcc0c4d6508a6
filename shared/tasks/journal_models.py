"""
The models of `config/journal.yaml` and of a tap's file.

A tap is a task that sends nothing. It reads what a replication task receives or has sent and writes it to the
journal, as evidence that does not depend on the replicator.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from shared.editors.options import Strict
from shared.tasks.models import SETTING, TaskFile
from shared.tasks.source import NAME, Source

CONTAINER = r"^[a-z0-9](-?[a-z0-9]){2,62}$"


class BlobJournal(Strict):
    """Append blobs in a container of a storage account."""

    setting: Annotated[str, Field(pattern=SETTING)]
    """Name of the app setting: NAME with a connection string, or NAME__blobServiceUri with the blob endpoint."""
    container: Annotated[str, Field(pattern=CONTAINER)] = "journal"
    """Name of the container."""


class CapturedJournal(BlobJournal):
    """The container that Capture writes to; the app does not use it, `busway reconcile` does."""

    container: Annotated[str, Field(pattern=CONTAINER)] = "journal-capture"
    """Name of the container."""


class EventHubJournal(Strict):
    """An event hub with Capture."""

    connection: str
    """Alias of a connection of kind event-hubs."""
    hub: str
    """Name of the event hub."""
    capture: CapturedJournal | None = None
    """Where Capture writes the events; needed to reconcile."""


class JournalFile(Strict):
    """The place of the journal of all tasks; exactly one."""

    blob: BlobJournal | None = None
    """A journal in append blobs."""
    event_hub: EventHubJournal | None = None
    """A journal in an event hub."""
    removed_taps: tuple[Annotated[str, Field(pattern=r"^[^=]+=[^=/]+/.+$")], ...] = ()
    """Taps that were removed on purpose, as TASK=TARGET; only `busway reconcile` reads them."""

    @property
    def container(self) -> BlobJournal | None:
        """The container from which the journal can be read, None if not configured."""
        return self.event_hub.capture if self.event_hub is not None else self.blob

    @model_validator(mode="after")
    def _is_one_place(self) -> Self:
        if (self.blob is None) == (self.event_hub is None):
            raise ValueError("expected one of blob and event_hub")
        return self


class Tap(Strict):
    """The task that a tap observes, and how."""

    of: str
    """The replication task that is observed."""
    side: Literal["source", "target"]
    """Whether the tap reads the task's source or one of its targets."""
    peek: str | None = None
    """NCRONTAB schedule at which the tap peeks, without receiving anything; required for a queue."""


class TapFile(Strict):
    """One tap: a task with `tap` in place of routes."""

    task: Annotated[str, Field(pattern=NAME)]
    """Name of the tap, which is also the function's name."""
    source: Source
    """The queue to peek at, or a subscription or consumer group that nothing else reads."""
    tap: Tap
    """What the tap observes."""

    def functions(self) -> list[str]:
        """Return the name of the tap's function."""
        return [self.task]

    @model_validator(mode="after")
    def _takes_from_nobody(self) -> Self:
        source = self.source
        if self.tap.peek is None and source.queue is not None:
            raise ValueError("drains a queue and would take messages from its consumer, expected tap.peek")
        if self.tap.peek is not None and source.hub is not None:
            raise ValueError("has tap.peek for a hub, expected a separate consumer group instead")
        if self.tap.peek is not None and source.sessions:
            problem = "has tap.peek for sessions, which are peeked only one by one, expected a subscription to drain"
            raise ValueError(problem)
        return self


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of the files in `tasks/`: replication tasks and taps."""
    definitions = TypeAdapter(TaskFile | TapFile).json_schema()["$defs"]
    # One key selects the model, so that a text editor reports only the problems of that one.
    which = {"if": {"required": ["tap"]}, "then": {"$ref": "#/$defs/TapFile"}, "else": {"$ref": "#/$defs/TaskFile"}}
    return {**which, "$defs": definitions}
