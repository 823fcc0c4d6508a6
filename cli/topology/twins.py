"""Where two namespaces differ in what tasks copy from one to the other under the same name."""

from collections.abc import Iterator
from dataclasses import dataclass

from cli.topology.model import SETTINGS, Entity, Kind, Name, Namespace, text_of
from cli.topology.needs import Needed, Needs


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference between two namespaces: the entity, and what each of them has."""

    name: Name
    what: str
    first: str
    """Alias of the first namespace, and what it has."""
    second: str

    def __str__(self) -> str:
        return f"{self.name}: {self.what}: {self.first}, {self.second}"


def drifts(needs: Needs, present: dict[str, Namespace]) -> list[Drift]:
    """Return where twins differ in *present*, the namespaces that could be read, by the key of their connection."""
    found = (_drifts(needs, present, *twin) for twin in needs.twins if {*twin[:2]} <= present.keys())
    return list(dict.fromkeys(drift for some in found for drift in some))


def _drifts(needs: Needs, present: dict[str, Namespace], first: str, second: str, name: Name) -> Iterator[Drift]:
    here, there = present[first], present[second]
    labels = needs.aliases[first], needs.aliases[second]
    if here.find(name) is None or there.find(name) is None:
        return
    entities = [entity.name for namespace in (here, there) for entity in namespace.sorted()]
    pairs = [each for each in entities if each.parent is not None and each.parent.key == name.key]
    for each in {each.key: each for each in (name, *pairs) if each.kind is not Kind.CONSUMER_GROUP}.values():
        one, other = here.find(each), there.find(each)
        if one is None or other is None:
            # A subscription that a task reads may be needed on one side only, as in active-passive.
            sources = [needs.namespaces[key].get(each.key) for key in (first, second)]
            if not any(source is not None and source.is_source for source in sources):
                has, lacks = labels if one is not None else labels[::-1]
                yield Drift(each, "exists on one side", f"{has} has it", f"{lacks} does not")
            continue
        needed = needs.namespaces[first].get(each.key), needs.namespaces[second].get(each.key)
        decided = _decided(*needed)
        yield from _settings(one, other, labels, decided)
        if not all(need is not None and need.rule is not None for need in needed):
            yield from _rules(one, other, labels)


def _decided(one: Needed | None, other: Needed | None) -> set[str]:
    """Return the settings that tasks or topology.yaml decide: a difference is then a step or an obstacle of a site."""
    mine, theirs = ({} if each is None else each.needs for each in (one, other))
    return {
        name
        for name in {*mine, *theirs}
        if name not in mine
        or name not in theirs
        or mine[name].value != theirs[name].value
        or (mine[name].must and theirs[name].must)
    }


def _settings(one: Entity, other: Entity, labels: tuple[str, str], decided: set[str]) -> Iterator[Drift]:
    both_detect = all(entity.settings.get("requires_duplicate_detection") for entity in (one, other))
    for setting, known in SETTINGS.items():
        if not known.is_noticed:
            continue
        is_known = setting in one.settings and setting in other.settings and setting not in decided
        if not is_known or (setting == "duplicate_detection_history_time_window" and not both_detect):
            continue
        texts = [text_of(entity.settings[setting], setting) for entity in (one, other)]
        if texts[0] != texts[1]:
            yield Drift(one.name, setting, f"{labels[0]} has {texts[0]}", f"{labels[1]} has {texts[1]}")


def _rules(one: Entity, other: Entity, labels: tuple[str, str]) -> Iterator[Drift]:
    only = [
        [rule for rule in mine.rules if not any(rule.does_the_same(each) for each in theirs.rules)]
        for mine, theirs in ((one, other), (other, one))
    ]
    if any(only):
        texts = [" and ".join(map(str, rules)) or "no other" for rules in only]
        yield Drift(one.name, "rules", f"{labels[0]} has {texts[0]}", f"{labels[1]} has {texts[1]}")
