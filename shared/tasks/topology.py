"""
The models of `topology.yaml`: what the entities have beyond what tasks need of them, and the entities of applications.

It is optional. Only `busway plan`, `busway apply` and the generated templates read it; the app does not.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import Field, RootModel

from shared.editors.options import AS_WRITTEN, Strict
from shared.tasks.models import Rule

TOPOLOGY = "topology.yaml"

type Duration = Annotated[timedelta, Field(strict=False, gt=timedelta(0)), AS_WRITTEN]
type Lock = Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=5), le=timedelta(minutes=5)), AS_WRITTEN]
type Window = Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=20), le=timedelta(days=7)), AS_WRITTEN]
type Retention = Annotated[timedelta, Field(strict=False, ge=timedelta(hours=1), le=timedelta(days=90)), AS_WRITTEN]
type Deliveries = Annotated[int, Field(ge=1, le=2**31 - 1)]


class QueueSettings(Strict):
    """Settings of a queue; what is left out is chosen for a new queue and kept in one that exists."""

    sessions: bool | None = None
    lock_duration: Lock | None = None
    max_delivery_count: Deliveries | None = None
    time_to_live: Duration | None = None
    duplicate_detection: bool | None = None
    duplicate_window: Window | None = None
    dead_letter_expired: bool | None = None
    partitioned: bool | None = None
    max_size_mb: Annotated[int, Field(ge=1024, le=81920)] | None = None
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None


class SubscriptionSettings(Strict):
    """Settings of a subscription, and its rule."""

    sessions: bool | None = None
    lock_duration: Lock | None = None
    max_delivery_count: Deliveries | None = None
    time_to_live: Duration | None = None
    dead_letter_expired: bool | None = None
    dead_letter_rule_errors: bool | None = None
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    rule: Rule | None = None


class TopicSettings(Strict):
    """Settings of a topic, and its subscriptions."""

    time_to_live: Duration | None = None
    duplicate_detection: bool | None = None
    duplicate_window: Window | None = None
    partitioned: bool | None = None
    max_size_mb: Annotated[int, Field(ge=1024, le=81920)] | None = None
    subscriptions: Annotated[dict[str, SubscriptionSettings | None], Field(default_factory=dict)]


class HubSettings(Strict):
    """Settings of an event hub, and consumer groups of applications."""

    partitions: Annotated[int, Field(ge=1, le=1024)] | None = None
    retention: (
        Annotated[timedelta, Field(strict=False, ge=timedelta(hours=1), le=timedelta(days=90)), AS_WRITTEN] | None
    ) = None
    consumer_groups: Annotated[tuple[str, ...], Field(strict=False)] = ()


class SiteEntities(Strict):
    """The entities of one connection."""

    queues: Annotated[dict[str, QueueSettings | None], Field(default_factory=dict)]
    topics: Annotated[dict[str, TopicSettings | None], Field(default_factory=dict)]
    hubs: Annotated[dict[str, HubSettings | None], Field(default_factory=dict)]


class Topology(RootModel[dict[str, SiteEntities]]):
    """The entities by the alias of their connection."""
