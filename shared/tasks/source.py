"""The source of a task or a tap, as `config/tasks/*.yaml` has it."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.editors.options import ActionText, FilterText, Strict
from shared.line.text_form import Encoding
from shared.tasks.routes import PartitionId, Target

NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,126}$"
DEFAULT_CONSUMER_GROUP = "$Default"


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
            raise ValueError("has only one of topic and subscription, expected both")
        if self.partitions is not None and (self.hub is None or self.consumer_group in {None, DEFAULT_CONSUMER_GROUP}):
            raise ValueError("has partitions, expected only for a hub with a consumer_group other than $Default")
        given = {
            "consumer_group": self.consumer_group is not None,
            "binary_properties": self.binary_properties is not None,
            "compacted": self.compacted,
            "`reader: app`": self.reader == "app",
        }
        for option in (option for option, is_given in given.items() if is_given and self.hub is None):
            raise ValueError(f"has {option}, expected only for a hub")
        if self.hub is not None and (self.dead_letter or self.sessions):
            raise ValueError("has dead_letter or sessions for a hub, expected only for a queue or subscription")
        if self.dead_letter and self.sessions:
            raise ValueError("has sessions and dead_letter, expected one of them: a dead-letter queue has no sessions")
        if self.rule is not None and self.subscription is None:
            raise ValueError("has a rule, expected only for a subscription")
        return self

    @model_validator(mode="after")
    def _has_literal_names(self) -> Self:
        names = {"queue", "topic", "subscription", "hub", "consumer_group"}
        indirect = sorted(name for name in names if "%" in (getattr(self, name) or ""))
        if indirect:
            # The host would take the value of an app setting, but not the scale controller (azure-functions-host 8261).
            raise ValueError(f"has % in {indirect[0]}, expected the name itself instead of an app setting")
        return self

    @property
    def entity(self) -> str:
        """The entity's path in its namespace."""
        path = self.queue or self.hub or self.webhook or f"{self.topic}/Subscriptions/{self.subscription}"
        return path + self.sub_queue

    @property
    def sent_to(self) -> str:
        """The name of the queue, topic or hub that its messages are sent to; empty for a webhook."""
        return self.queue or self.topic or self.hub or ""

    def gets(self, target: Target) -> bool:
        """Return whether messages for *target* are sent there, by the same connection; names have no case."""
        return (self.connection, self.sent_to.lower()) == (target.connection, target.entity.lower())

    @property
    def sub_queue(self) -> str:
        """The suffix that names the sub-queue in the path; empty for the entity itself."""
        if self.dead_letter == "transfer":
            return "/$Transfer/$DeadLetterQueue"
        return "/$DeadLetterQueue" if self.dead_letter else ""
