"""
The models of `config/connections.yaml` and `config/tasks/*.yaml`.

The JSON schema in `config/task.schema.json` is generated from `TaskFile` and `shared.tasks.journal_models.TapFile`.
"""

import contextlib
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from shared.durations import written
from shared.editors.options import Off, Strict
from shared.ends.kind import Kind
from shared.ends.registry import kind, kinds, names
from shared.tasks.options import (
    MOST_LANES,
    HeartbeatOptions,
    Levers,
    Limits,
    LoopPrevention,
    StampedLife,
    Throughput,
)
from shared.tasks.routes import Branch, Route, Target
from shared.tasks.source import NAME, Source
from shared.tasks.steps import EditorStep

SITE = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
SETTING = r"^[A-Za-z][A-Za-z0-9_]*$"
CHAINS = frozenset(("chain", "verify-chain"))
"""The editors that need the order of the source."""
_JOINING = frozenset(("batch", "deduplicate"))
"""The editors that join messages."""


def _with_kinds(schema: dict[str, JsonValue]) -> None:
    schema["enum"] = [found.name for found in kinds()]


class Connection(Strict):
    """A namespace or broker: its kind, and the app setting or the secret with its address and credentials."""

    kind: Annotated[str, Field(json_schema_extra=_with_kinds)]
    """
    `service-bus`, `event-hubs`: namespaces. `amqp`, `kafka`: other brokers, as targets. `storage-queue`: the queues of
    a storage account. `event-grid`: a topic, or the topics of a namespace. The page of app settings has the form of
    the setting for each.
    """
    secret: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,127}$")] | None = None
    """Name of the secret with the connection string for sending; sources are opened with the app setting."""
    setting: Annotated[str | None, Field(pattern=SETTING, validate_default=True)] = None
    """Name of the app setting with the address and credentials; `kind` says what is in it."""
    site: Annotated[str, Field(pattern=SITE)] | None = None
    """Short name of the site on repl-path; by default the alias of the connection."""
    headers: Literal["text", "amqp"] | None = None
    """For kind kafka, the form of headers: text (the default), or each value's AMQP encoding, as Event Hubs has it."""

    @field_validator("kind", mode="before")
    @classmethod
    def _is_a_kind(cls, kind: object) -> object:
        if not isinstance(kind, str) or kind not in names():
            *others, last = (repr(found.name) for found in kinds())
            expected = f"{', '.join(others)} or {last}"
            raise PydanticCustomError("literal_error", "expected {expected}", {"expected": expected})
        return kind

    @field_validator("setting")
    @classmethod
    def _can_be_opened(cls, setting: str | None, info: ValidationInfo) -> str | None:
        # An invalid secret is not in the data; it is reported separately.
        if setting is None and info.data.get("secret", "") is None:
            raise ValueError("is missing, expected the name of an app setting, or for a target that of a secret")
        return setting

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.headers is not None and not self.end.has_headers:
            expected = " or ".join(found.name for found in kinds(lambda found: found.has_headers))
            raise ValueError(f"has headers, expected only for kind {expected}")
        return self

    @property
    def key(self) -> str:
        """The name of the app setting, or else of the secret: equal for all connections to one namespace."""
        return self.setting or f"secret {self.secret}"

    @property
    def end(self) -> Kind:
        """What Busway knows about its kind."""
        return kind(self.kind)

    @property
    def is_namespace(self) -> bool:
        """Whether it is a namespace of Service Bus or Event Hubs, whose entities Busway plans and looks into."""
        return self.end.is_namespace


def _kind_of(value: object) -> str:
    """Return which member of a union is meant, so that an error in one is not reported for both."""
    return "mapping" if isinstance(value, (dict, BaseModel)) else "word"


def _no_bare_life(value: object) -> object:
    with contextlib.suppress(OverflowError):
        if isinstance(value, str) and written(value) is not None:
            problem = f"is '{value}', expected 'keep', 'remaining' or, to set it on every copy, {{stamp: {value}}}"
            raise ValueError(problem)
    return value


class TaskFile(Strict):
    """One replication task."""

    task: Annotated[str, Field(pattern=NAME)]
    """Name of the task, which is also the function's name."""
    source: Source
    """Where the messages come from."""
    editors: Annotated[tuple[EditorStep, ...], Field(strict=False)] = ()
    """Editors, in the order in which they run."""
    routes: Annotated[tuple[Route, ...], Field(strict=False, min_length=1)]
    """Routes, of which the first whose `when` is true takes a message."""
    rejects: Target | None = None
    """Target of rejected messages; required for hubs and dead-letter sub-queues."""
    lanes: Annotated[int, Field(ge=1, le=MOST_LANES)] = 1
    """Functions that take from the queue or subscription side by side, with sessions each from another session."""
    dispatch: Literal["batch", "single"] = "batch"
    """`single`: the host delivers and settles each message by itself; Busway gathers them for the target."""
    throughput: Throughput | None = None
    """Lets Busway choose `lanes` or `dispatch`, unless the task names them."""
    ttl: Annotated[
        Annotated[Literal["keep", "remaining"], Tag("word")] | Annotated[StampedLife, Tag("mapping")],
        Discriminator(_kind_of),
        BeforeValidator(_no_bare_life),
    ] = "keep"
    """Time to live of the copy: as sent (`keep`), less the time that has passed (`remaining`), or `{stamp: 2m}`."""
    loop_prevention: Annotated[
        Annotated[Off, Tag("word")] | Annotated[LoopPrevention, Tag("mapping")], Discriminator(_kind_of)
    ] = LoopPrevention()
    """`off` also sends messages to sites on their repl-path."""
    limits: Limits = Limits()
    """When the task stops or stops waiting."""
    heartbeat: HeartbeatOptions | None = None
    """Sends a message through each route every so often, to see it arrive; by default none."""
    journal: Annotated[
        Literal["required", "best_effort", False], WithJsonSchema({"enum": ["required", "best_effort", "off", False]})
    ] = "required"
    """Whether a batch fails if the journal in `journal.yaml` is unavailable; `off` writes no journal."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for faults in (_lane_faults, _heartbeat_faults, _throughput_faults, _end_faults, _editor_faults):
            for fault in faults(self):
                raise ValueError(fault)
        return self

    @property
    def in_order(self) -> bool:
        """Whether messages have an order to keep: that of a session, a partition, an envelope or a chain."""
        source = self.source
        links = any(step.verb() in CHAINS for step in self.editors)
        return source.sessions or source.hub is not None or source.form == "envelope" or links

    @property
    def fans_out(self) -> bool:
        """Whether a message may have several targets."""
        return any(len(route.targets) > 1 for route in self.routes)

    @property
    def levers(self) -> Levers:
        """How its messages are taken: as it says, or else as `throughput` advises."""
        if self.advised is not None and self.has_chosen_levers:
            return self.advised
        return Levers(self.lanes, self.dispatch)

    @property
    def has_chosen_levers(self) -> bool:
        """Whether `throughput` chooses its levers."""
        return self.throughput is not None and "lanes" not in self.model_fields_set and self.dispatch == "batch"

    @property
    def advised(self) -> Levers | None:
        """The levers that fit what `throughput` says, None without it."""
        if self.throughput is None:
            return None
        is_batch = "dispatch" in self.model_fields_set and self.dispatch == "batch"
        return self.throughput.levers(can_be_single=not (is_batch or self.has_bindings))

    @property
    def has_bindings(self) -> bool:
        """Whether the host sends messages of a route, through an output binding."""
        return any(route.via == "binding" for route in self.routes)

    def functions(self) -> list[str]:
        """Return the names of the task's functions, one for each lane."""
        return [self.task, *(f"{self.task}-lane-{number}" for number in range(2, self.levers.lanes + 1))]

    @property
    def most_rejects_in_a_row(self) -> int | None:
        """The number of rejected messages that stops the task, None for no limit."""
        # One of the many senders of a webhook must not stop it for the others.
        if self.source.webhook is not None and "rejects_in_a_row" not in self.limits.model_fields_set:
            return None
        return self.limits.rejects_in_a_row or None

    def branches(self) -> list[Branch]:
        """Return every target of every route, in the order of the file."""
        found = []
        for index, route in enumerate(self.routes):
            for number, target in enumerate(route.targets):
                place = f"[{number}]" if isinstance(route.target, tuple) else ""
                found.append(Branch(f"routes[{index}].target{place}", index, route, target))
        return found

    def ends(self) -> list[tuple[str, Target]]:
        """Return every target of the task with its place in the file, `rejects` last."""
        ends = [(branch.path, branch.target) for branch in self.branches()]
        return ends if self.rejects is None else [*ends, ("rejects", self.rejects)]

    def targets(self) -> list[Target]:
        """Return every target of the task, `rejects` last."""
        return [target for _, target in self.ends()]


def _lane_faults(task: TaskFile) -> Iterator[str]:
    source = task.source
    needs_one_order = task.in_order and not source.sessions
    if source.form == "envelope" and source.sessions:
        yield "takes envelopes with sessions, expected no sessions: a binding cannot set a session id"
    if task.lanes > 1 and source.hub is not None:
        yield "has lanes for a hub, expected none: its partitions are read side by side already"
    if task.lanes > 1 and needs_one_order:
        yield "has lanes and no sessions, expected no lanes: its editors or envelopes need one order"
    if task.dispatch == "single" and source.hub is not None:
        yield "has `dispatch: single` for a hub, expected none: the host settles the events of a hub in batches"
    if task.dispatch == "single" and task.lanes > 1:
        yield "has lanes and `dispatch: single`, expected one of them: each takes messages side by side"
    if task.dispatch == "single" and needs_one_order:
        yield "has `dispatch: single` and no sessions, expected batches: its editors or envelopes need one order"
    if task.dispatch == "single" and task.has_bindings:
        yield "has `dispatch: single` and `via: binding`, expected one of them: a binding sends for one invocation"


def _heartbeat_faults(task: TaskFile) -> Iterator[str]:
    if task.source.reader == "app" and task.has_bindings:
        yield "has `reader: app` and `via: binding`, expected one of them: a binding needs a trigger"
    if task.heartbeat is None:
        return
    if task.source.dead_letter:
        yield "has a heartbeat for a dead-letter queue, expected none: nobody can send to one"
    if task.source.form == "envelope":
        yield "has a heartbeat for a source of envelopes, expected none: only a binding sends those"
    if task.has_bindings:
        yield "has a heartbeat and `via: binding`, expected one of them: the host does not say when it has sent"
    if task.source.hub is not None and not task.heartbeat.visible:
        yield (
            "has a heartbeat for a hub, expected `visible: true`, or a task of its own between two hubs for it: "
            "all consumers of a hub see all events"
        )


def _throughput_faults(task: TaskFile) -> Iterator[str]:
    source, throughput = task.source, task.throughput
    if throughput is None:
        return
    if source.hub is not None:
        yield "has throughput for a hub, expected none: its partitions are read side by side already"
    if not source.sessions and task.in_order:
        yield "has throughput and no sessions, expected none: its editors or envelopes need one order"
    if source.sessions != (throughput.sessions is not None):
        seen = "no throughput.sessions" if source.sessions else "throughput.sessions, and its source has none"
        yield f"has {seen}, expected it with `sessions: true` only"


def _end_faults(task: TaskFile) -> Iterator[str]:
    source = task.source
    if task.rejects is None and (source.hub is not None or source.dead_letter):
        yield "has no rejects, expected a queue, topic or hub for rejected messages"
    if not source.dead_letter and any(map(source.gets, task.targets())):
        yield "sends to its own source, expected another entity"
    if source.hub is None and any(target.partition == "keep" for target in task.targets()):
        yield "has `partition: keep`, expected a hub as the source: other messages have no partition"


def _editor_faults(task: TaskFile) -> Iterator[str]:
    verbs = [step.verb() for step in task.editors]
    if "partition" in verbs and task.source.sessions:
        yield "sets a partition key on messages with a session, whose id is already their key"
    if "partition" in verbs and any(branch.target.partition is not None for branch in task.branches()):
        yield "sets a partition key, but a route has a partition, which overrides the key"
    joining = next((verb for verb in verbs if verb in _JOINING), None)
    if joining is not None and task.fans_out:
        yield (
            f"has a route with several targets and the editor {joining}, which joins messages, expected one of them: "
            "a joined message must reach all of its targets in one delivery"
        )
    if not CHAINS.isdisjoint(verbs):
        from shared.tasks.chains import chain_faults  # noqa: PLC0415 - imports both editors, which few tasks have

        yield from chain_faults(task.source, task.editors, [route.when for route in task.routes])
