"""The applications that send what is to be replicated."""

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from busway_broker.config import EntityStatus
from busway_broker.core.content import read_content
from busway_broker.core.event import read_event
from tests.simulation.draft import Draft, encoded
from tests.simulation.topology import Input, source_path

if TYPE_CHECKING:
    from tests.simulation.world import World

_VISIBLE = 0.002
_EACH_SCHEDULED = 3
_KINDS = {"plain": 8, "express": 5, "unwanted": 2, "poison": 2, "heavy": 2, "brief": 1}
_AGAIN = 600.0
"""The seconds after which an application sends a message a second time at the latest."""


class Applications:
    """They send until every message is accepted; `begin` lets them."""

    def __init__(self, world: "World") -> None:
        """Draw to which inputs they send, and what."""
        self._world = world
        self._numbers: dict[str, int] = {}
        self._senders = world.chance.choices(world.topology.inputs, k=world.scale.messages)
        self.waiting = sum(1 + source.is_repeated for source in self._senders)
        """How many sends are still to come."""
        self._kinds = self._drawn_kinds()

    def begin(self) -> None:
        """Let each message be sent at once or some time in the window."""
        chance, window = self._world.chance, self._world.scale.window
        for source in self._senders:
            at = chance.random() * window * chance.choice((0.0, 1.0))
            self._world.network.at(at, partial(self._send, source))

    def _send(self, target: Input) -> None:
        """Send a message; applications try again until it is accepted."""
        if not self._accepts(target):
            self._world.network.later(1.0, partial(self._send, target))
            return
        key = f"key-{self._world.chance.randrange(self._world.scale.keys)}"
        number = self._numbers[target.site + target.entity] = self._numbers.get(target.site + target.entity, 0) + 1
        name = f"{target.entity}.{target.site}.{number}"
        kind = self._kind(target)
        parts = self._world.chance.randrange(2, 4) if self._world.topology.splits else 1
        draft = Draft(key, name, target, kind, parts, self._world.scale.size)
        if target.schedules and number % _EACH_SCHEDULED == 0:
            self._schedule(draft)
        else:
            self._publish(draft)
        if target.is_repeated:
            self._world.network.later(
                self._world.chance.random() ** 4 * _AGAIN, partial(self._repeat, draft._replace(is_again=True))
            )

    def _schedule(self, draft: Draft) -> None:
        """Send a message that becomes visible later."""
        site = self._world.sites[draft.input.site]
        seconds = self._world.chance.random() ** 2 * max(self._world.scale.window - self._world.loop.time(), 1.0)
        due = round(site.clock.now().timestamp() * 1000 + seconds * 1000)
        content = read_content(encoded(draft, is_hub=False, due=due))
        site.namespace.target(draft.input.entity).publish(content)
        self._world.network.later(seconds + _VISIBLE, partial(self._note_scheduled, draft))

    def _note_scheduled(self, draft: Draft) -> None:
        """Count a scheduled message as sent when it has become visible."""
        file = next(task for task in self._world.tasks if task.task == draft.input.task)
        store = self._world.sites[draft.input.site].namespace.store(source_path(file))
        found = [message.encode() for message in store.messages.values()]
        self._world.seen.setdefault(draft.input, []).append(
            next(content for content in found if json.dumps(draft.name).encode() in content)
        )
        self._world.accepted.append(draft)
        self.waiting -= 1

    def _repeat(self, draft: Draft) -> None:
        """Send a message that the application takes for lost."""
        if self._accepts(draft.input):
            self._publish(draft)
        else:
            self._world.network.later(1.0, partial(self._repeat, draft))

    def _accepts(self, target: Input) -> bool:
        site = self._world.sites[target.site]
        if site.is_away or target.entity in site.namespace.hubs or target.is_dead:
            return not site.is_away
        return site.namespace.target(target.entity).config.status is EntityStatus.ACTIVE

    def _publish(self, draft: Draft) -> None:
        target, namespace = draft.input, self._world.sites[draft.input.site].namespace
        content = encoded(draft, is_hub=target.entity in namespace.hubs)
        if target.entity in namespace.hubs:
            partition = namespace.hub(target.entity).partition_for(draft.key)
            partition.append([read_event(content, draft.key)])
            delivered = partition.events[-1].encode()
        elif target.is_dead:
            backlog = namespace.queue(target.entity).backlog
            number = backlog.dead_letters.add(read_content(content))
            delivered = backlog.dead_letters.messages[number].encode()
        else:
            file = next(task for task in self._world.tasks if task.task == target.task)
            store = namespace.store(source_path(file))
            namespace.target(target.entity).publish(read_content(content))
            delivered = store.messages[max(store.messages)].encode()
        self._world.seen.setdefault(target, []).append(delivered)
        self._world.accepted.append(draft)
        self.waiting -= 1

    def _drawn_kinds(self) -> Mapping[str, int]:
        """Return how often each kind is sent: most are alike in half of the histories, as one then follows another."""
        return _KINDS if self._world.chance.random() < 0.5 else {"plain": 3, self._world.chance.choice([*_KINDS]): 1}

    def _kind(self, target: Input) -> str:
        if self._world.topology.refuses is not None:
            return self._world.chance.choices(("plain", "heavy"), (9, 1))[0]
        if target.choose is None:
            return "plain"
        return self._world.chance.choices([*self._kinds], [*self._kinds.values()])[0]
