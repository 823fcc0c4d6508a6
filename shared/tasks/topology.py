"""
The models of `topology.yaml`: what the entities have beyond what tasks need of them, and the entities of applications.

It is optional. Only `busway plan`, `busway apply` and the generated templates read it; the app does not.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, RootModel

from shared.editors.options import AS_WRITTEN, Strict
from shared.tasks.source import Rule

TOPOLOGY = "topology.yaml"

type Duration = Annotated[timedelta, Field(strict=False, gt=timedelta(0)), AS_WRITTEN]
type Lock = Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=5), le=timedelta(minutes=5)), AS_WRITTEN]
type Window = Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=20), le=timedelta(days=7)), AS_WRITTEN]
type Retention = Annotated[timedelta, Field(strict=False, ge=timedelta(hours=1), le=timedelta(days=90)), AS_WRITTEN]
type Deliveries = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Delivering(Strict):
    sessions: bool | None = None
    """Whether sessions are required."""
    lock_duration: Lock | None = None
    """How long a receiver holds a message: 5s to 5m."""
    max_delivery_count: Deliveries | None = None
    """Deliveries after which a message is dead-lettered."""
    dead_letter_expired: bool | None = None
    """Whether expired messages are dead-lettered."""
    forward_to: str | None = None
    """Queue or topic to which messages are forwarded."""
    forward_dead_letters_to: str | None = None
    """Queue or topic to which dead letters are forwarded."""


class _Holding(Strict):
    time_to_live: Duration | None = None
    """Longest life of a message."""


class _Taking(_Holding):
    duplicate_detection: bool | None = None
    """Whether a second message with the same id is dropped."""
    duplicate_window: Window | None = None
    """How long ids are remembered: 20s to 7d."""
    partitioned: bool | None = None
    """Whether it is partitioned; cannot be changed."""
    max_size_mb: Annotated[int, Field(ge=1024, le=81920)] | None = None
    """Size in MiB."""


class QueueSettings(_Delivering, _Taking):
    """Settings of a queue; what is left out is chosen for a new queue and kept in one that exists."""


class SubscriptionSettings(_Delivering, _Holding):
    """Settings of a subscription, and its rule."""

    dead_letter_rule_errors: bool | None = None
    """Whether messages at which the rule fails are dead-lettered."""
    rule: Rule | None = None
    """The only rule; without it the subscription keeps what it has."""


class TopicSettings(_Taking):
    """Settings of a topic, and its subscriptions."""

    subscriptions: Annotated[dict[str, SubscriptionSettings | None], Field(default_factory=dict)]
    """Subscriptions by name; null for one without settings."""


class HubSettings(Strict):
    """Settings of an event hub, and consumer groups of applications."""

    partitions: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of partitions; 4 for a new hub."""
    retention: Retention | None = None
    """How long events are kept: 1h to 90d."""
    consumer_groups: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Consumer groups of applications."""


class SiteEntities(Strict):
    """The entities of one connection."""

    queues: Annotated[dict[str, QueueSettings | None], Field(default_factory=dict)]
    """Queues by name; null for one without settings."""
    topics: Annotated[dict[str, TopicSettings | None], Field(default_factory=dict)]
    """Topics by name."""
    hubs: Annotated[dict[str, HubSettings | None], Field(default_factory=dict)]
    """Event hubs by name."""


class Topology(RootModel[dict[str, SiteEntities]]):
    """The entities by the alias of their connection."""
