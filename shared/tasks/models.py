"""
The models of `config/connections.yaml` and `config/tasks/*.yaml`.

The JSON schema in `config/task.schema.json` is generated from `TaskFile` and `shared.tasks.journal_models.TapFile`.
"""

import contextlib
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
from shared.editors.options import ActionText, FilterText, Off, Strict
from shared.ends.kind import Kind
from shared.ends.registry import kind, kinds, names
from shared.line.text_form import Encoding
from shared.tasks.heartbeat_options import HeartbeatOptions, heartbeat_fault
from shared.tasks.limits import Limits, LoopPrevention, StampedLife
from shared.tasks.routes import Branch, PartitionId, Route, Target
from shared.tasks.steps import EditorStep
from shared.tasks.throughput import MOST_LANES, Levers, Throughput

NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,126}$"
SITE = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
SETTING = r"^[A-Za-z][A-Za-z0-9_]*$"
DEFAULT_CONSUMER_GROUP = "$Default"
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


class Rule(Strict):
    """A rule of a subscription, which the broker runs."""

    filter: FilterText
    """SQL filter: the messages that the subscription gets."""
    action: ActionText | None = None
    """SQL action on them."""


class Source(Strict):
    """Where messages come from: a queue, a topic's subscription, or an event hub."""

    connection: str
    """Alias of the connection."""
    queue: str | None = None
    """Name of the queue; with `dead_letter`, the queue whose dead letters are taken."""
    topic: str | None = None
    """Name of the topic, together with `subscription`."""
    subscription: str | None = None
    """Name of the subscription, which nothing else reads."""
    webhook: Annotated[str, Field(pattern=NAME)] | None = None
    """For a connection of kind event-grid: the name of the topic; its events are taken at /api/events/NAME."""
    hub: str | None = None
    """Name of the event hub."""
    consumer_group: str | None = None
    """Consumer group of the hub; by default $Default. Two tasks must not use the same one."""
    partitions: Annotated[tuple[PartitionId, ...], Field(strict=False, min_length=1)] | None = None
    """Partitions of the hub to take from; by default all. Needs a consumer group that nothing else uses."""
    binary_properties: bool | None = None
    """For a hub: `false` if no sender uses binary, list or map properties; Azure's host cannot pass those raw."""
    compacted: bool = False
    """For a hub with log compaction, which removes events: its sequence numbers have gaps that are no losses."""
    reader: Literal["host", "app"] = "host"
    """For a hub: `app` reads it without the host, which cannot pass some events to a function, as Kafka's with keys."""
    dead_letter: bool | Literal["transfer"] = False
    """Take from the dead-letter queue of the queue or subscription; `transfer`: from its transfer dead-letter queue."""
    sessions: bool = False
    """Whether the queue or subscription requires sessions, whose order is then kept."""
    rule: Rule | None = None
    """The rule that the subscription has."""
    form: Annotated[Literal["message", "envelope"], Field(alias="from")] = "message"
    """`envelope`: each message holds messages that a route with `via: binding` has sent; they are taken out of it."""
    encoding: Encoding | None = None
    """For a storage queue: how other producers encode their messages; by default `text`."""

    @model_validator(mode="after")
    def _is_one_entity(self) -> Self:
        kinds = [kind for kind in ("queue", "topic", "webhook", "hub") if getattr(self, kind) is not None]
        if len(kinds) != 1:
            msg = f"names {' and '.join(kinds) or 'no entity'}, expected one of queue, topic with subscription, hub"
            raise ValueError(msg)
        if (self.topic is None) != (self.subscription is None):
            msg = "has only one of topic and subscription, expected both"
            raise ValueError(msg)
        if self.hub is None and self.consumer_group is not None:
            msg = "has consumer_group, expected only for a hub"
            raise ValueError(msg)
        if self.partitions is not None and (self.hub is None or self.consumer_group in {None, DEFAULT_CONSUMER_GROUP}):
            msg = "has partitions, expected only for a hub with a consumer_group other than $Default"
            raise ValueError(msg)
        if self.hub is None and self.binary_properties is not None:
            msg = "has binary_properties, expected only for a hub"
            raise ValueError(msg)
        if self.hub is None and self.compacted:
            msg = "has compacted, expected only for a hub"
            raise ValueError(msg)
        if self.hub is None and self.reader == "app":
            msg = "has `reader: app`, expected only for a hub"
            raise ValueError(msg)
        if self.hub is not None and (self.dead_letter or self.sessions):
            msg = "has dead_letter or sessions for a hub, expected only for a queue or subscription"
            raise ValueError(msg)
        if self.dead_letter and self.sessions:
            msg = "has sessions and dead_letter, expected one of them: a dead-letter queue has no sessions"
            raise ValueError(msg)
        if self.rule is not None and self.subscription is None:
            msg = "has a rule, expected only for a subscription"
            raise ValueError(msg)
        return self

    @property
    def entity(self) -> str:
        """The entity's path in its namespace."""
        path = self.queue or self.hub or self.webhook or f"{self.topic}/Subscriptions/{self.subscription}"
        return path + self.sub_queue

    @property
    def sub_queue(self) -> str:
        """The suffix that names the sub-queue in the path; empty for the entity itself."""
        if self.dead_letter == "transfer":
            return "/$Transfer/$DeadLetterQueue"
        return "/$DeadLetterQueue" if self.dead_letter else ""


def _kind_of(value: object) -> str:
    """Return which member of a union is meant, so that an error in one is not reported for both."""
    return "mapping" if isinstance(value, (dict, BaseModel)) else "word"


def _no_bare_life(value: object) -> object:
    with contextlib.suppress(OverflowError):
        if isinstance(value, str) and written(value) is not None:
            raise ValueError(
                f"is '{value}', expected 'keep', 'remaining' or, to set it on every copy, {{stamp: {value}}}"
            )
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
    def _has_sources_of_envelopes_without_sessions(self) -> Self:
        if self.source.form == "envelope" and self.source.sessions:
            raise ValueError("takes envelopes with sessions, expected no sessions: a binding cannot set a session id")
        return self

    @model_validator(mode="after")
    def _has_lanes_of_use(self) -> Self:
        if self.lanes > 1 and self.source.hub is not None:
            raise ValueError("has lanes for a hub, expected none: its partitions are read side by side already")
        if self.lanes > 1 and not self.source.sessions and self.in_order:
            raise ValueError("has lanes and no sessions, expected no lanes: its editors or envelopes need one order")
        return self

    @model_validator(mode="after")
    def _can_be_dispatched(self) -> Self:
        if self.dispatch == "batch":
            return self
        if self.source.hub is not None:
            msg = "has `dispatch: single` for a hub, expected none: the host settles the events of a hub in batches"
            raise ValueError(msg)
        if self.lanes > 1:
            msg = "has lanes and `dispatch: single`, expected one of them: each takes messages side by side"
            raise ValueError(msg)
        if not self.source.sessions and self.in_order:
            msg = "has `dispatch: single` and no sessions, expected batches: its editors or envelopes need one order"
            raise ValueError(msg)
        if self._has_bindings:
            msg = "has `dispatch: single` and `via: binding`, expected one of them: a binding sends for one invocation"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _can_read_by_itself(self) -> Self:
        if self.source.reader == "app" and self._has_bindings:
            raise ValueError("has `reader: app` and `via: binding`, expected one of them: a binding needs a trigger")
        return self

    @model_validator(mode="after")
    def _can_have_heartbeats(self) -> Self:
        options = self.heartbeat
        vias = [route.via for route in self.routes]
        fault = None if options is None else heartbeat_fault(options, self.source, vias)
        if fault is not None:
            raise ValueError(fault)
        return self

    @model_validator(mode="after")
    def _has_throughput_of_use(self) -> Self:
        if self.throughput is None:
            return self
        if self.source.hub is not None:
            raise ValueError("has throughput for a hub, expected none: its partitions are read side by side already")
        if not self.source.sessions and self.in_order:
            raise ValueError("has throughput and no sessions, expected none: its editors or envelopes need one order")
        if self.source.sessions != (self.throughput.sessions is not None):
            seen = "no throughput.sessions" if self.source.sessions else "throughput.sessions, and its source has none"
            raise ValueError(f"has {seen}, expected it with `sessions: true` only")
        return self

    @model_validator(mode="after")
    def _has_rejects(self) -> Self:
        if self.rejects is None and (self.source.hub is not None or self.source.dead_letter):
            msg = "has no rejects, expected a queue, topic or hub for rejected messages"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _sends_elsewhere(self) -> Self:
        source = (self.source.connection, self.source.queue, self.source.topic, self.source.hub)
        targets = [(target.connection, target.queue, target.topic, target.hub) for target in self.targets()]
        if not self.source.dead_letter and source in targets:
            raise ValueError("sends to its own source, expected another entity")
        return self

    @model_validator(mode="after")
    def _has_partitions_to_keep(self) -> Self:
        if self.source.hub is None and any(target.partition == "keep" for target in self.targets()):
            raise ValueError("has `partition: keep`, expected a hub as the source: other messages have no partition")
        return self

    @model_validator(mode="after")
    def _has_partition_keys_of_use(self) -> Self:
        if not any(step.verb() == "partition" for step in self.editors):
            return self
        if self.source.sessions:
            raise ValueError("sets a partition key on messages with a session, whose id is already their key")
        if any(branch.target.partition is not None for branch in self.branches()):
            raise ValueError("sets a partition key, but a route has a partition, which overrides the key")
        return self

    @model_validator(mode="after")
    def _joins_for_one_target(self) -> Self:
        verb = next((step.verb() for step in self.editors if step.verb() in _JOINING), None)
        if verb is not None and self.fans_out:
            msg = f"has a route with several targets and the editor {verb}, which joins messages, expected one of them"
            raise ValueError(f"{msg}: a joined message must reach all of its targets in one delivery")
        return self

    @model_validator(mode="after")
    def _chains_are_whole(self) -> Self:
        if not any(step.verb() in {"chain", "verify-chain"} for step in self.editors):
            return self
        from shared.tasks.chains import chain_fault  # noqa: PLC0415 - imports both editors, which few tasks have

        fault = chain_fault(self.source, self.editors, [route.when for route in self.routes])
        if fault is not None:
            raise ValueError(fault)
        return self

    @property
    def in_order(self) -> bool:
        """Whether messages have an order to keep: that of a session, a partition, an envelope or a chain."""
        source = self.source
        links = any(step.verb() in {"chain", "verify-chain"} for step in self.editors)
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
        return self.throughput.levers(can_be_single=not (is_batch or self._has_bindings))

    @property
    def _has_bindings(self) -> bool:
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

    def targets(self) -> list[Target]:
        """Return every target of the task, `rejects` last."""
        targets = [branch.target for branch in self.branches()]
        return targets + ([self.rejects] if self.rejects is not None else [])
