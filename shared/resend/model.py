"""
What the dashboard's API returns about given-up messages, and what it takes to resend some.

Names from messages are as they are: a reader escapes what a terminal would act on. docs/status.schema.json is generated
from these types.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from shared.resend.options import Unclear

type Time = Annotated[str, Meta(description="ISO 8601, UTC")]
type Entity = Annotated[str, Meta(description="CONNECTION/ENTITY")]


class GroupChoice(Struct, frozen=True, forbid_unknown_fields=True):
    """What the messages of a group share."""

    reason: str
    source: Annotated[str | None, Meta(description="SITE/ENTITY that gave them up")] = None
    task: Annotated[str | None, Meta(description="the task that rejected them")] = None


class DeadGroup(Struct, frozen=True):
    """A group of messages in one entity; ages are in seconds."""

    group: GroupChoice
    messages: int
    oldest: float | None
    newest: float | None
    example: Annotated[int | None, Meta(description="sequence number of one of them")]


class DeadEntity(Struct, frozen=True):
    """An entity with given-up messages; `messages` is null where it cannot be read, for the reason in `unknown`."""

    entity: Entity
    place: Annotated[str, Meta(description="SITE/ENTITY")]
    kind: Literal["dead letters", "rejects"]
    messages: int | None
    is_minimum: Annotated[bool, Meta(description="only the first ones were looked at")] = False
    groups: Annotated[list[DeadGroup], Meta(description="the largest first")] = []
    unknown: str | None = None


class DeadLetterReport(Struct, frozen=True):
    """The given-up messages of all entities that the tasks name."""

    time: Time
    may_resend: bool
    shows_bodies: bool
    destinations: Annotated[list[Entity], Meta(description="where messages can be sent, besides where they came from")]
    entities: list[DeadEntity]


class LetterLine(Struct, frozen=True):
    """One message in a list."""

    number: int | None
    enqueued: Time | None
    message_id: str | None
    session_id: str | None
    description: str | None
    bytes: int


class LetterList(Struct, frozen=True):
    """The first messages of a group."""

    letters: list[LetterLine]
    has_more: bool


class LetterField(Struct, frozen=True):
    """A field, property or annotation with its AMQP type; what a terminal would act on is escaped."""

    name: str
    type: str
    value: str


class LetterDetail(Struct, frozen=True):
    """One message; its body only where the app setting BUSWAY_DASHBOARD_BODIES allows it."""

    entity: Entity
    place: str
    line: LetterLine
    group: GroupChoice
    is_wrapped: Annotated[bool, Meta(description="the message is the body of the one that is there")]
    fields: list[LetterField]
    body: str | None
    body_is_cut: bool = False
    unreadable: str | None = None


type Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ResendOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a POST to `resend`: a group of an entity, or single messages of it."""

    entity: Entity
    group: GroupChoice | None = None
    numbers: Annotated[list[Number], Meta(description="sequence numbers", min_length=1, max_length=100)] | None = None
    to: Annotated[Entity | None, Meta(description="null: where they came from")] = None
    ids: Annotated[
        Literal["keep", "new", "same"],
        Meta(description="keep: leave what the entity would drop as a duplicate; new: give ids; same: send as it is"),
    ] = "keep"
    unclear: Annotated[Unclear, Meta(description="messages that an interrupted run may have sent")] = Unclear.LEAVE


class Left(Struct, frozen=True):
    """Messages that stay, for one reason."""

    reason: str
    messages: int
    numbers: Annotated[list[int], Meta(description="the first sequence numbers")]


class ResendStep(Struct, frozen=True):
    """What one request has done; repeat it while `waiting` is not 0."""

    sent: int
    completed: Annotated[int, Meta(description="an earlier request had sent them")]
    gone: Annotated[int, Meta(description="they have expired, or another receiver has taken them")]
    waiting: Annotated[int, Meta(description="not reached in the time of one request")]
    left: list[Left]
    error: str | None = None
