"""
What it takes to get from the entities that exist to those that tasks need.

1. Steps are independent requests. After any of them, and after none, a new plan finds what is left.
2. A step never loses a message or lets one bounce: docs/decisions/0045-entities-from-tasks.md has the order.
3. Nothing is deleted except `$Default` beside the declared rule; other deletions are extras, for `--prune` only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from cli.topology.model import (
    DEFAULT_RULE,
    FIXED,
    NEW_RULE,
    ORDER,
    Entity,
    Kind,
    Name,
    Namespace,
    Setting,
    SubscriptionRule,
    text_of,
)
from cli.topology.needs import Need, Needed
from shared.message.heartbeat import HIDING
from shared.tasks.heartbeats import hiding

OWNER = "busway:"
"""How the metadata of an entity begins that `busway apply` has created; only those does `--prune` delete."""


class Action(StrEnum):
    """What a step does."""

    CREATE = "create"
    CHANGE = "change"
    CREATE_RULE = "create rule"
    REPLACE_RULE = "replace rule"
    DELETE_RULE = "delete rule"
    DELETE = "delete"


_PARTITIONS = 16


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that differs, with the reason for which it must not."""

    setting: str
    has: Setting
    needs: Setting
    reason: str

    def __str__(self) -> str:
        return f"{self.setting}: {text_of(self.has, self.setting)} → {text_of(self.needs, self.setting)}"


@dataclass(frozen=True, slots=True)
class Step:
    """One request: what it does, to which entity, and what for."""

    action: Action
    name: Name
    settings: Mapping[str, Setting] = field(default_factory=dict)
    """All settings of a new entity; the new values of an entity that changes."""
    changes: tuple[Change, ...] = ()
    rule: SubscriptionRule | None = None
    """The rule that is created, takes the place of another, or is deleted."""
    replaced: SubscriptionRule | None = None
    needed_by: tuple[str, ...] = ()
    is_source: bool = False

    @property
    def is_deletion(self) -> bool:
        """Whether only `--prune` does it: deleting `$Default` beside the declared rule is part of declaring it."""
        is_left_over = self.rule is not None and self.rule.name == DEFAULT_RULE and self.rule.selects_everything
        return self.action is Action.DELETE or (self.action is Action.DELETE_RULE and not is_left_over)

    @property
    def order(self) -> tuple[int, int, tuple[Kind, str]]:
        """Position among all steps: what is sent to before what sends, then what forwards, deletions last."""
        if self.action in {Action.DELETE, Action.DELETE_RULE}:
            return 3, -ORDER[self.name.kind], self.name.key
        # Subscriptions of applications collect messages before any task sends to their topic.
        phase = 2 if any(map(is_forward, self.settings)) else int(self.is_source)
        return phase, ORDER[self.name.kind], self.name.key


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What no request can change, and the way round."""

    name: Name
    problem: str
    way_round: str


@dataclass(frozen=True)
class Difference:
    """The difference of one namespace."""

    steps: tuple[Step, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    extras: tuple[Step, ...] = ()
    """Deletions that only `--prune` carries out."""
    unchanged: int = 0


def difference(
    needed: Mapping[tuple[Kind, str], Needed],
    present: Namespace,
    heartbeats: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Difference:
    """
    Return what it takes to give *present* everything that is *needed*.

    *heartbeats* are the tasks that send some to a topic, by its name in lower case: its other subscriptions hide them.
    """
    steps: list[Step] = []
    obstacles: list[Obstacle] = []
    unchanged = 0
    for need in needed.values():
        entity = present.find(need.name)
        if entity is None:
            # Queues and topics share one set of names.
            twin = {Kind.QUEUE: Kind.TOPIC, Kind.TOPIC: Kind.QUEUE}.get(need.name.kind)
            if twin is not None and present.find(Name(twin, need.name.parts)) is not None:
                text = f"is a {twin} in the namespace, and the tasks need a {need.name.kind}"
                way = f"name it `{twin}:` in the tasks, or give the {need.name.kind} another name"
                obstacles.append(Obstacle(need.name, text, way))
            else:
                steps += _creation_steps(need)
            continue
        before = len(steps) + len(obstacles)
        changes = list(_changes(need, entity))
        fixed = [change for change in changes if change.setting in FIXED]
        obstacles += [_fixed(need, change) for change in fixed]
        other = [change for change in changes if change.setting not in FIXED]
        if other:
            settings = {change.setting: change.needs for change in other}
            by = tuple(need.needed_by)
            steps.append(Step(Action.CHANGE, entity.name, settings, tuple(other), needed_by=by))
        steps += _rule_steps(need, entity)
        unchanged += len(steps) + len(obstacles) == before
    hidden, unhidden = _hidden_heartbeats(needed, present, heartbeats)
    steps += hidden
    obstacles += unhidden
    steps += _unwanted(needed, present)
    return Difference(
        tuple(sorted((step for step in steps if not step.is_deletion), key=lambda each: each.order)),
        tuple(obstacles),
        tuple(sorted((step for step in steps if step.is_deletion), key=lambda each: each.order)),
        unchanged,
    )


def creation(need: Needed) -> Step:
    """Return the step that creates an entity with all its settings and its rule."""
    settings = {name: need.value for name, need in need.needs.items()}
    if need.name.kind in {Kind.QUEUE, Kind.TOPIC, Kind.SUBSCRIPTION}:
        settings["user_metadata"] = f"{OWNER} {', '.join(need.needed_by)}"[:1024]
    if not settings.get("requires_duplicate_detection", True):
        settings.pop("duplicate_detection_history_time_window", None)
    by = tuple(need.needed_by)
    rule = need.rule or need.rule_if_new
    return Step(Action.CREATE, need.name, settings, rule=rule, needed_by=by, is_source=need.is_source)


def _creation_steps(need: Needed) -> Iterator[Step]:
    """Yield the creation, and then what it forwards to, which must exist, and may be created only after it."""
    step = creation(need)
    forwards = {setting: value for setting, value in step.settings.items() if is_forward(setting)}
    yield replace(step, settings={setting: step.settings[setting] for setting in step.settings.keys() - forwards})
    if forwards:
        changes = tuple(Change(setting, None, value, need.needs[setting].reason) for setting, value in forwards.items())
        yield Step(Action.CHANGE, need.name, forwards, changes, needed_by=step.needed_by)


def is_forward(setting: str) -> bool:
    """Return whether a setting names an entity that gets what this one has."""
    return setting.startswith("forward_")


def _changes(need: Needed, entity: Entity) -> Iterator[Change]:
    for setting, each in need.needs.items():
        if setting not in entity.settings:
            continue
        has = entity.settings[setting]
        if setting == "duplicate_detection_history_time_window" and not entity.settings.get(
            "requires_duplicate_detection"
        ):
            continue
        if setting == "max_size_in_megabytes" and entity.settings.get("enable_partitioning") and isinstance(has, int):
            if has == each.value:
                continue
            has //= _PARTITIONS  # the service shows the sum (Azure/azure-service-bus issue 229), a local broker may not
        if setting == "default_message_time_to_live" and entity.settings.get("forward_to"):
            continue  # the service takes it away from what forwards (Azure/azure-cli issue 8424)
        if not _satisfies(setting, each, has):
            yield Change(setting, has, each.value, each.reason)


def _satisfies(setting: str, need: Need, has: Setting) -> bool:
    if need.must:
        return has == need.value or (is_forward(setting) and str(has).lower() == str(need.value).lower())
    return need.least is None or has is None or not has < need.least  # type: ignore[operator] # both are of the setting's type


def _fixed(need: Needed, change: Change) -> Obstacle:
    text = f"has {change.setting} {text_of(change.has)}, needs {text_of(change.needs)}: {change.reason}"
    match need.name.kind:
        case Kind.SUBSCRIPTION:
            way = (
                "name a new subscription in the task or in topology.yaml, which apply creates, let its readers empty "
                "the old one, then delete that"
            )
        case Kind.HUB:
            way = "create a hub with another name and use that; only Premium and Dedicated can add partitions"
        case _:
            way = (
                f"create another {need.name.kind} with the setting by naming it in the task, move senders and "
                "receivers to it, and delete this one once it is empty; or fit the task to what exists"
            )
    return Obstacle(need.name, text, way)


def _rule_steps(need: Needed, entity: Entity) -> Iterator[Step]:
    """
    Yield how the subscription gets the declared rule as its only one.

    A rule is replaced in place, in one request, so that at no time both or none of two rules select messages.
    """
    if need.rule is None:
        return
    name, by = entity.name, tuple(need.needed_by)
    fitting = next((rule for rule in entity.rules if rule.does_the_same(need.rule)), None)
    others = [rule for rule in entity.rules if rule is not fitting]
    if fitting is None:
        place = next((rule for rule in others if rule.name.lower() == need.rule.name.lower()), None)
        place = place or next((rule for rule in others if rule.name == DEFAULT_RULE), None)
        place = place or (others[0] if len(others) == 1 else None)
        if place is None:
            yield Step(Action.CREATE_RULE, name, rule=need.rule, needed_by=by)
        else:
            others.remove(place)
            new = SubscriptionRule(place.name, need.rule.filter, need.rule.action)
            yield Step(Action.REPLACE_RULE, name, rule=new, replaced=place, needed_by=by)
    yield from (Step(Action.DELETE_RULE, name, rule=rule, needed_by=by) for rule in others)


def _hidden_heartbeats(
    needed: Mapping[tuple[Kind, str], Needed], present: Namespace, heartbeats: Mapping[str, Sequence[str]]
) -> tuple[list[Step], list[Obstacle]]:
    """
    Return how the rules of applications stop selecting heartbeats, and the rules that have to be changed by hand.

    A correlation filter stays: it selects only messages with its values, and a heartbeat has none but its marks.
    """
    steps, obstacles = [], []
    for entity in present.entities.values():
        need = needed.get(entity.name.key)
        tasks = heartbeats.get(entity.name.parts[0].lower(), ()) if entity.name.kind is Kind.SUBSCRIPTION else ()
        if not tasks or (need is not None and (need.is_source or need.rule is not None)):
            continue
        for rule in entity.rules:
            if not isinstance(rule.filter, str) or hiding(rule.filter) == rule.filter:
                continue
            if rule.parameters:
                text = f"its rule {rule.name} selects heartbeats of {', '.join(tasks)}, and has parameters"
                obstacles.append(Obstacle(entity.name, text, f"add `AND {HIDING}` to the filter"))
                continue
            new = SubscriptionRule(rule.name, hiding(rule.filter), rule.action)
            steps.append(Step(Action.REPLACE_RULE, entity.name, rule=new, replaced=rule, needed_by=tuple(tasks)))
    return steps, obstacles


def _unwanted(needed: Mapping[tuple[Kind, str], Needed], present: Namespace) -> Iterator[Step]:
    """Yield the deletion of each entity that apply has created and that nothing needs any more."""
    for entity in present.entities.values():
        if _is_own(entity) and entity.name.key not in needed:
            parent = entity.name.parent
            is_gone_with_its_topic = parent is not None and parent.key not in needed and _is_own(present.find(parent))
            if not is_gone_with_its_topic:
                yield Step(Action.DELETE, entity.name)


def after(present: Namespace, steps: Iterable[Step]) -> Namespace:
    """Return what a namespace has once *steps* are taken; of a new entity only what the step says is known."""
    entities = dict(present.entities)
    for step in steps:
        key, entity = step.name.key, entities.get(step.name.key, Entity(step.name))
        rules = tuple(rule for rule in entity.rules if step.rule is None or rule.name != step.rule.name)
        match step.action:
            case Action.DELETE:
                del entities[key]
            case Action.CREATE | Action.CHANGE:
                settings = {**entity.settings, **step.settings}
                is_new = step.action is Action.CREATE
                entities[key] = Entity(entity.name, settings, (step.rule or NEW_RULE,) if is_new else entity.rules)
            case Action.DELETE_RULE:
                entities[key] = Entity(entity.name, entity.settings, rules)
            case _:
                new = () if step.rule is None else (step.rule,)
                entities[key] = Entity(entity.name, entity.settings, (*rules, *new))
    return Namespace(entities.values())


def _is_own(entity: Entity | None) -> bool:
    return entity is not None and str(entity.settings.get("user_metadata") or "").startswith(OWNER)
