"""The routes of a task file, and their targets."""

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Discriminator, Field, Tag, model_validator

from shared.editors.options import ActionText, FilterText, Strict
from shared.line.binding_output import DEFAULT_MAX_MESSAGE_BYTES
from shared.line.text_form import Encoding

MOST_TARGETS = 50

type PartitionId = Annotated[int, Field(ge=0)]


class Target(Strict):
    """Where messages are sent: a queue, a topic, an event hub, or an address of another broker."""

    connection: str
    """Alias of the connection."""
    queue: str | None = None
    """Name of the queue."""
    topic: str | None = None
    """Name of the topic."""
    hub: str | None = None
    """Name of the event hub."""
    address: str | None = None
    """For a connection of kind amqp: the address as the broker expects it, such as /queues/orders of RabbitMQ 4."""
    partition: Literal["keep"] | PartitionId | None = None
    """For a hub: the id of a partition, or `keep` for the partition of the original; by default the key decides."""
    encoding: Encoding | None = None
    """For a storage queue: the encoding of the texts that are sent; by default `text`."""

    @model_validator(mode="after")
    def _is_one_entity(self) -> Self:
        if sum(each is not None for each in (self.queue, self.topic, self.hub, self.address)) != 1:
            raise ValueError("expected one of queue, topic, hub and address")
        if not self.entity:
            raise ValueError("has an empty name, expected that of a queue, topic, hub or address")
        if self.partition is not None and self.hub is None:
            raise ValueError("has a partition, expected only for a hub")
        return self

    @property
    def kind(self) -> Literal["queue", "topic", "hub", "address"]:
        """What the entity is."""
        if self.queue is not None:
            return "queue"
        return "topic" if self.topic is not None else "hub" if self.hub is not None else "address"

    @property
    def entity(self) -> str:
        """The entity's name in its namespace."""
        return self.queue or self.topic or self.hub or self.address or ""


def _form_of(value: object) -> str:
    """Return whether one target is meant, or several."""
    return "list" if isinstance(value, (list, tuple)) else "mapping"


class Route(Strict):
    """A condition, an action and a target or several; the first route whose `when` is true takes the message."""

    target: Annotated[
        Annotated[Target, Tag("mapping")]
        | Annotated[tuple[Target, ...], Field(strict=False, min_length=1, max_length=MOST_TARGETS), Tag("list")],
        Discriminator(_form_of),
    ]
    """One target, or a list: each gets every message of the route, and has results, retries and an order of its own."""
    when: FilterText | None = None
    """SQL filter; without it the route takes every message."""
    action: ActionText | None = None
    """SQL action on the copy."""
    via: Literal["sdk", "binding"] = "sdk"
    """`binding`: the host sends, through an output binding of the function."""
    body_only: bool = False
    """With `via: binding`, to a storage queue or to Event Grid: send only the body, instead of envelopes."""
    max_message_bytes: Annotated[int, Field(ge=1000, le=100_000_000)] = DEFAULT_MAX_MESSAGE_BYTES
    """With `via: binding`: size of the largest text; one message that needs more is rejected."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """Its target, or all of them."""
        return self.target if isinstance(self.target, tuple) else (self.target,)

    @model_validator(mode="after")
    def _has_different_targets(self) -> Self:
        names = [f"{target.entity} of {target.connection}" for target in self.targets]
        earlier = [name.lower() for name in names]
        twice = next((name for number, name in enumerate(names) if name.lower() in earlier[:number]), None)
        if twice is not None:
            raise ValueError(f"names {twice} twice, expected different targets")
        if self.via == "binding" and len(names) > 1:
            msg = "has several targets and `via: binding`, expected one: the host does not say which of them it reached"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.via == "sdk" and "max_message_bytes" in self.model_fields_set:
            raise ValueError("has max_message_bytes, expected only with `via: binding`")
        if self.via == "binding" and self.targets[0].address is not None:
            raise ValueError("names an address, which an output binding cannot, expected no `via: binding`")
        if self.via == "binding" and self.targets[0].partition is not None:
            raise ValueError("names a partition, which an output binding cannot, expected no `via: binding`")
        return self


class Branch(NamedTuple):
    """One target of a route."""

    path: str
    """Its place in the task file: `routes[0].target`, or `routes[0].target[1]` in a list."""
    number: int
    """That of the route."""
    route: Route
    target: Target
