"""
The oracles of a history that has come to rest: each is a sentence for what went wrong.

1. Every accepted message is in its targets, in rejects, withheld on record, or at its source.
2. The first copies of a key are in the order in which the source accepted them.
3. No message comes back to where it was accepted.
4. A copy equals its original except its stamps, which name the sites that it has left, and what each had assigned.
5. What is withheld or rejected is what the task is to withhold or reject, and nothing else.
6. An instance that knows that a message was accepted does not begin to send it again.
7. A source gives up a message when an outcome is on record, and not before.
8. What one target has is on record while another is waited for, and what was on record when an instance began it does
   not send: only kills between a send and its record explain second copies.
9. What is on record as sent or rejected was accepted there before, and was on record as received before it was sent.
10. A delivery sends nothing whose lock it knows as lost or ended, or that came when its task was paused; and none is
    held for longer than its task may.
"""

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from shared.amqp.sections import only_data
from shared.protocols import Outcome
from tests.faults.conservation import Account, Balance, Copy, balance
from tests.simulation.copies import Expected, difference, properties_of, read, wrong_stamps
from tests.simulation.draft import Draft
from tests.simulation.faults import Effect, Operation
from tests.simulation.topology import DEAD_LETTERS, Input
from tests.simulation.world import World

REJECTED = ("poison", "heavy")
_WITHHELD = ("unwanted", *REJECTED)
_DECIDED = {"filtered", "looped", "expired"}
# A life is shortened when an attempt begins, by whole seconds, and clocks differ; the line allows for five seconds.
_LATE_MILLISECONDS = 8_000
# An attempt waits for its link, for two minutes at most.
_LATEST_MILLISECONDS = 150_000


def lines_of(world: World) -> list[dict[str, Any]]:
    """Return the records of all journals, in the order in which they were written."""
    return [line for lines in world.records for line in lines]


def outcomes_of(world: World) -> dict[str, str]:
    """Return why messages were withheld, by their names."""
    names: dict[tuple[object, ...], str] = {}
    withheld = []
    for line in lines_of(world):
        key = line["task"], line.get("src_part"), line.get("src_seq")
        if line["role"] == "source":
            names[key] = str(line.get("message_id"))
        elif line.get("outcome") in _DECIDED:
            withheld.append((key, str(line["outcome"])))
    # One of two that are the same is withheld, and the other one is due all the same.
    again = {draft.name for draft in world.accepted if draft.is_again}
    return {
        names[key]: outcome
        for key, outcome in withheld
        if key in names and outcome != "looped" and not (outcome == "filtered" and names[key] in again)
    }


class Arrival(NamedTuple):
    """What lies at a place: the name in its body, and its bytes."""

    name: str
    content: bytes


def stored(world: World, site: str, path: str) -> list[Arrival]:
    """Return what has arrived at a place, in its order."""
    if not world.topology.joins:
        return [arrival_of(content) for content in world.contents(site, path)]
    return [Arrival(name, content) for content in world.contents(site, path) for name in _names(content)]


def planted(world: World) -> frozenset[str]:
    """Return the names of the messages that were settled without an invocation."""
    return frozenset(arrival_of(content).name for content in world.losing.contents)


def remove_copies(world: World, chance: random.Random) -> frozenset[str]:
    """
    Remove all copies of a message, or of one of its parts, at a target; return the message's name, if there is one.

    Others have arrived before it and after it: beyond them, a tap that sees nothing may not have been there.
    """
    for source in world.topology.inputs:
        owners = {name: draft.name for draft in world.accepted if draft.input is source for name in draft.names}
        drafts = [name for draft in world.accepted if draft.kind != "brief" for name in draft.names if name in owners]
        for site, path in source.targets:
            namespace = world.sites[site].namespace
            if (
                site == source.site
                or path in namespace.hubs
                or source.entity in world.sites[source.site].namespace.hubs
            ):
                continue
            store = namespace.store(path)
            copies = {number: arrival_of(message.encode()).name for number, message in store.messages.items()}
            own = [number for number, name in copies.items() if name in drafts]
            inner = {copies[number] for number in own[1:-1]} - {copies[number] for number in (*own[:1], *own[-1:])}
            # A copy that was deleted with its target has arrived all the same: a tap has seen it.
            inner -= {arrival_of(content).name for content in world.deleted.get((site, path), ())}
            if inner:
                chosen = chance.choice(sorted(inner))
                for number in [number for number, name in copies.items() if name == chosen]:
                    del store.messages[number]
                return frozenset({owners[chosen]})
    return frozenset()


class Place(NamedTuple):
    """What the messages of an input came to at one of their targets."""

    source: Input
    site: str
    path: str
    arrived: Sequence[Arrival]
    due: Mapping[str, Draft]
    """By the names that must arrive."""
    originals: Mapping[str, Draft]
    balance: Balance

    def __str__(self) -> str:
        return f"{self.source.site}/{self.source.entity} to {self.target}"

    @property
    def target(self) -> str:
        """Return the queue, topic or hub, with its site."""
        return f"{self.site}/{self.path.partition('/')[0]}"


def lost(found: Sequence[Place]) -> frozenset[str]:
    """Return the names of accepted messages that are nowhere."""
    return frozenset(place.due[name].name for place in found for name in place.balance.lost)


def repeated(found: Sequence[Place]) -> frozenset[str]:
    """Return the names of messages with several copies at a place."""
    names = (
        name
        for place in found
        for name, count in Counter(arrival.name for arrival in place.arrived).items()
        if count > 1
    )
    return frozenset(name.partition("/")[0] for name in names)


def carriers(world: World, names: frozenset[str]) -> frozenset[str]:
    """Return the ids of the envelopes from which a task has sent messages with these names."""
    lines = [line for line in lines_of(world) if "message_id" in line]
    sent = {
        (line["task"], line["src_seq"]) for line in lines if line["role"] == "target" and line["message_id"] in names
    }
    received = [line for line in lines if line["role"] == "source" and (line["task"], line["src_seq"]) in sent]
    return frozenset(str(line["message_id"]) for line in received)


def objections(
    world: World, found: Sequence[Place], outcomes: Mapping[str, str], on_purpose: frozenset[str] = frozenset()
) -> Iterator[str]:
    """
    Yield what went wrong.

    Shape:  *found* is what `places` has returned; *outcomes* has the reason for which a message was withheld, by its
            name, as the journal says; the messages *on_purpose* need not be anywhere.
    """
    for place in found:
        yield from _objections(world, place, on_purpose)
    kinds = {draft.name: draft.kind for draft in world.accepted}
    for name, outcome in outcomes.items():
        if kinds.get(name) not in {"unwanted", "brief"}:
            yield f"{name}: {outcome}, and is {kinds.get(name)}"
    for site in world.sites:
        for reject in _rejects(world, site):
            if kinds.get(reject.name) not in REJECTED:
                yield f"{reject.name}: rejected, and is {kinds.get(reject.name)}"
    for what, names in world.wrong.items():
        if names:
            yield f"{what}: {', '.join(sorted(names))}"
    yield from _given_up_early(world)
    for source in world.topology.inputs:
        # The time to live of a brief one may have ended there.
        waiting = {arrival.name for arrival in _at_source(world, source)}
        waiting -= {draft.name for draft in world.accepted if draft.kind == "brief"}
        if waiting:
            yield f"{source.site}/{source.entity}: still at the source: {', '.join(sorted(waiting))}"


def _given_up_early(world: World) -> Iterator[str]:
    """Yield what a source gave up when no outcome of it was on record, unless that was planted."""
    recorded: dict[tuple[str, int | None], int] = {}
    for member, lines in enumerate(world.records):
        for line in lines:
            if line.get("outcome", Outcome.RETRY) != Outcome.RETRY:
                recorded.setdefault((line["task"], line.get("src_seq")), member)
    for tasks, number, members in world.given_up if world.loses is None else ():
        if all(recorded.get((task, number), members) >= members for task in tasks):
            yield f"{tasks[0]}: given up by its source before an outcome was on record: number {number}"


def places(world: World, outcomes: Mapping[str, str]) -> list[Place]:
    """Return what every input came to at each of its targets; *outcomes* as in `objections`."""
    found: list[Place] = []
    rejected = [reject.name for site in world.sites for reject in _rejects(world, site)]
    for source in world.topology.inputs:
        drafts = [draft for draft in world.accepted if draft.input is source]
        originals = {name: draft for draft in drafts for name in draft.names}
        remaining = frozenset(
            name for arrival in _at_source(world, source) for name in originals if _is_of(name, arrival)
        )
        for site, path in source.targets:
            arrived = [arrival for arrival in stored(world, site, path) if arrival.name in originals]
            due = {name: draft for name, draft in originals.items() if _is_due(source, draft, (site, path))}
            account = Account(
                accepted=[Copy(draft.key, name) for name, draft in due.items()],
                delivered=[Copy(originals[arrival.name].key, arrival.name) for arrival in arrived],
                withheld=frozenset(name for name, draft in due.items() if draft.name in outcomes),
                rejected=[
                    name
                    for each in rejected
                    for name, draft in originals.items()
                    if _is_of(name, Arrival(each, b"")) and draft.kind in _kept_from(world, (site, path))
                ],
                remaining=remaining,
                repeatable=Counter(arrival.name for arrival in arrived),
            )
            found.append(Place(source, site, path, arrived, due, originals, balance(account)))
    return found


def _objections(world: World, place: Place, on_purpose: frozenset[str]) -> Iterator[str]:
    result, topology = place.balance, world.topology
    counts = Counter(arrival.name for arrival in place.arrived)
    twice = [name for name, count in counts.items() if count > 1]
    gone = [name for name in result.lost if place.due[name].name not in on_purpose]
    breaks = [name for name in result.order_breaks if place.due[name].name not in on_purpose]
    kinds = {name: place.due[name].kind for name in counts if name in place.due}
    found = {
        "lost": gone,
        "arrived although it was to be withheld": [
            each for each, kind in kinds.items() if kind in _kept_from(world, (place.site, place.path))
        ],
        "arrived although it was to go elsewhere": sorted(counts.keys() - place.due.keys()),
        "withheld, and arrived": result.contradicted,
        "out of order": breaks if world.has_order else (),
        "came back": twice if place.site == place.source.site else (),
        "twice without a fault": ()
        if world.faults.injected
        else [name for name in twice if place.originals[name].name not in on_purpose],
    }
    yield from (f"{place}: {what}: {', '.join(names)}" for what, names in found.items() if names)
    yield from _changed(world, place)
    for arrival in place.arrived:
        if topology.has_mark and place.site != place.source.site and not _has_mark(arrival.content):
            yield f"{place}: {arrival.name} lacks what the rule of the source has set"


def _changed(world: World, place: Place) -> Iterator[str]:
    """Yield each copy that differs from its original, except where an editor makes another message of it."""
    topology, source = world.topology, place.source
    if topology.joins or source.has_bodies_only:
        return
    drafts = [draft for draft in world.accepted if draft.input is source]
    originals = defaultdict[str, list[bytes]](list)
    for draft, content in zip(drafts, world.seen.get(source, ()), strict=True):
        originals[draft.name].append(content)
    is_event, was_event = (
        path in world.sites[site].namespace.hubs
        for site, path in ((place.site, place.path), (source.site, source.entity))
    )
    way = topology.way(source, place.site)
    for arrival in place.arrived:
        draft = place.originals[arrival.name]
        if draft.name in world.unnumbered:
            continue
        expected = Expected(
            way,
            draft.key,
            is_event=is_event,
            crosses=is_event != was_event,
            ends_within=_late_milliseconds(world) if "ttl: remaining" in topology.tasks else None,
        )
        differences = [
            wrong_stamps(original, arrival.content, way)
            if draft.parts > 1
            else difference(original, arrival.content, expected)
            for original in originals[draft.name]
        ]
        if all(differences):
            yield f"{place}: {arrival.name} was changed: {differences[0]}"


def _late_milliseconds(world: World) -> int:
    """Return by how much a copy with the rest of its original's life may outlive it."""
    return _LATEST_MILLISECONDS if world.faults.injected[f"{Effect.SLOW} ({Operation.ATTACH})"] else _LATE_MILLISECONDS


def _kept_from(world: World, place: tuple[str, str]) -> Sequence[str]:
    """Return the kinds of messages that must not arrive at a place."""
    refuses = world.topology.refuses
    return _WITHHELD if refuses in {None, place} else [kind for kind in _WITHHELD if kind != "heavy"]


def _is_of(name: str, arrival: Arrival) -> bool:
    """Return whether a name is that of a message, or of a part of it."""
    return name == arrival.name or name.startswith(f"{arrival.name}/")


def _is_due(source: Input, draft: Draft, place: tuple[str, str]) -> bool:
    if source.choose is None:
        return True
    return place == source.targets[0 if draft.kind == "express" else 1]


def _rejects(world: World, site: str) -> list[Arrival]:
    """Return what is in `rejects`, or in the dead-letter queues of the sources without it."""
    if world.topology.dead_letters:
        paths = [source.entity + DEAD_LETTERS for source in world.topology.inputs if source.site == site]
        return [letter for path in paths for letter in stored(world, site, path) if not _has_expired(letter)]
    return stored(world, site, "rejected") if "rejected" in world.sites[site].namespace.queues else []


def _has_expired(arrival: Arrival) -> bool:
    reason = properties_of(arrival.content).get("DeadLetterReason")
    return reason is not None and reason.payload == "TTLExpiredException"


def _at_source(world: World, source: Input) -> Iterator[Arrival]:
    namespace = world.sites[source.site].namespace
    if source.entity in namespace.hubs:
        return
    paths = [source.entity] if source.entity in namespace.queues else [f"{source.entity}/Subscriptions/replication"]
    rejected = _rejects(world, source.site) if world.topology.dead_letters else ()
    for path in paths:
        yield from (arrival for arrival in stored(world, source.site, path) if arrival not in rejected)


def arrival_of(content: bytes) -> Arrival:
    """Return what lies somewhere; an envelope that is to be split has the name of its message."""
    names = _names(content)
    return Arrival(names[0] if len(names) == 1 else names[0].partition("/")[0], content)


def _names(content: bytes) -> list[str]:
    found = json.loads(only_data(read(content).sections.body) or b"[]")
    return [found] if isinstance(found, str) else found


def _has_mark(content: bytes) -> bool:
    return "replication" in properties_of(content)
