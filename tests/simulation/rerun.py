"""The world of a history whose losses an operator repairs, or whose messages are replayed, while the app goes on."""

import random
from collections import Counter

from cli.repair.manifest import Missing
from cli.repair.search import GOOD, State
from cli.replay.plan import Plan, Position
from shared.assembly.journals import actions_of
from shared.journal.imprints import Imprinter
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.replay import REPLAY
from shared.resend.pipeline_delivery import key_of
from shared.tasks.models import TaskFile
from tests.simulation.copies import properties_of
from tests.simulation.draft import Draft
from tests.simulation.faults import RESEND_EFFECTS
from tests.simulation.ledger import Lines, failure_of
from tests.simulation.operator_process import simulated_connections
from tests.simulation.oracles import Place, arrival_of, lines_of, outcomes_of, places
from tests.simulation.rerun_process import RerunProcess, RerunReport
from tests.simulation.reruns import GROUP, Command, Rerun
from tests.simulation.topology import Input, settings_of
from tests.simulation.world import Scale, World

_NIGHT_SECONDS = 300.0
_HEALING_SECONDS = 3 * 3600.0
_MOST_RUNS_AFTER = 4
_LONGEST_SECONDS = 120.0
_RATES = 0.0, 0.03, 0.1, 0.2
_EVENTS = 0, 1, 3, 8
_WINDOWS = 20.0, 120.0


class RerunWorld(World):
    """One history in the making: first that of the app, then that of the command."""

    def __init__(self, seed: int, rerun: Rerun, scale: Scale, most_faults: int | None = None) -> None:
        """Create the sites; a repair needs losses, which are planted."""
        is_repair = rerun.command is Command.REPAIR
        super().__init__(seed, rerun, scale, most_faults, random.Random(seed).choice((2, 3)) if is_repair else None)
        self.rerun = rerun
        self.settings = settings_of(rerun)
        self.lines = Lines(failure_of(self.chance.random()))
        self.reports: list[RerunReport] = []
        self.manifest: list[Missing] = []
        self.plan: Plan | None = None
        self.keys: dict[str, str] = {}
        """The key in the ledger of each message that is to be sent, by its name."""
        self.stale: set[str] = set()
        """The names of messages in the manifest that have arrived all the same."""
        self.had: set[tuple[str, str]] = set()
        """What a repair must not send: a place and a name."""
        self.before = Counter[tuple[str, str]]()
        """How often the app has sent what a repair looked for, by place and name."""
        self.senders: dict[tuple[str, str], RerunProcess] = {}
        """The process that was the last one to send something, by place and name."""
        self.numbers: dict[str, int | None] = {}
        """The sequence numbers of the messages that are to be sent, at their sources."""
        self._runs = self._runs_after = 0
        self._is_over = False
        self._process: RerunProcess | None = None

    def run(self) -> bool:
        """Let the app carry everything, then run the command and break; then heal."""
        if not super().run():
            return False
        # Another owner of a partition may be late; the night comes hours later.
        self.loop.run_until(lambda: False, self.loop.time() + _NIGHT_SECONDS)
        if self.rerun.command is Command.REPAIR:
            self._lose()
        else:
            self._choose()
        window = self.chance.choice(_WINDOWS)
        end = self.loop.time() + window
        self.is_quiet = False
        self.faults.begin(self.chance.choice(_RATES), RESEND_EFFECTS)
        for _ in range(self.chance.choice(_EVENTS)):
            self.network.later(self.faults.chance.random() * window, self._disturb)
        self.network.later(0.0, self._run_command)
        with simulated_connections(self):
            self.loop.run_until(lambda: self._is_over, end)
            self.network.later(0.0, self._heal_again)
            return self.loop.run_until(lambda: self._is_over, end + _HEALING_SECONDS)

    def is_seen_at(self, target: str, name: str) -> bool:
        """Return whether a queue shows what the command looks for, so that it needs not be sent there."""
        site, _, path = target.partition("/")
        namespace = self.sites[site].namespace
        if path not in namespace.queues or (self.plan is not None and self.has_shares):
            return False
        contents = [message.encode() for message in namespace.store(path).peek(0)]
        return any(arrival_of(content).name == name and self.is_own(content) for content in contents)

    def has_copies(self, source: Input) -> bool:
        """Return whether what was accepted at *source* is kept somewhere."""
        is_hub = source.entity in self.sites[source.site].namespace.hubs
        return is_hub or any(copy.startswith(f"{source.site}/{source.entity}/") for copy in self.rerun.copies)

    def is_own(self, content: bytes) -> bool:
        """Return whether a copy is one that the command has sent; a repair sends what the task would have."""
        return self.plan is None or REPLAY in properties_of(content)

    # What is to be sent

    def _lose(self) -> None:
        """Lose more, and write the manifest of what is missing."""
        found = places(self, outcomes_of(self))
        for place in found:
            self._remove(place)
        found = places(self, outcomes_of(self))
        for place in found:
            self.before.update((place.target, arrival.name) for arrival in place.arrived)
        for source in self.topology.inputs:
            for number, draft in enumerate(draft for draft in self.accepted if draft.input is source):
                here = [place for place in found if place.source is source and place.site != source.site]
                lacking = [place for place in here if draft.name in place.balance.lost]
                having = [place.target for place in here if place not in lacking]
                is_seen = all(self.is_seen_at(place.target, draft.name) for place in here)
                is_stale = not lacking and is_seen and self.chance.random() < 0.3
                if not lacking and not is_stale:
                    continue
                if is_stale:
                    self.stale.add(draft.name)
                    having = []
                missing = self._missing(source, draft, self.seen[source][number], len(here), having)
                self.manifest.append(missing)
                self.keys[draft.name] = missing.key
                self.had |= {(target, draft.name) for target in having}

    def _remove(self, place: Place) -> None:
        """Remove some messages from a place, as if the target had lost them."""
        namespace = self.sites[place.site].namespace
        if place.site == place.source.site or place.path in namespace.hubs or self.chance.random() < 0.5:
            return
        chosen = {name for name in place.due if self.chance.random() < 0.3}
        # A copy that was deleted with its target has arrived all the same.
        chosen -= {arrival_of(content).name for content in self.deleted.get((place.site, place.path), ())}
        messages = namespace.store(place.path).messages
        for number, message in list(messages.items()):
            if arrival_of(message.encode()).name in chosen:
                del messages[number]

    def _missing(self, source: Input, draft: Draft, content: bytes, expected: int, having: list[str]) -> Missing:
        """Return the line of the manifest for a message, with what the journal has of it."""
        file, arrival = self._arrival(source, draft, content)
        imprint = Imprinter(actions_of(file)).arriving(Message.received(content, arrival.origin))
        self.numbers[draft.name] = arrival.sequence_number
        is_numbered = arrival.origin.partition is not None or self.chance.random() < 0.7
        if not is_numbered:
            self.unnumbered.add(draft.name)
        return Missing(
            file.task,
            source.site,
            file.source.entity,
            int(arrival.origin.partition or 0),
            arrival.sequence_number if is_numbered else None,
            arrival.enqueued_time if is_numbered else None,
            imprint.message_id,
            imprint.body_digest.hex(),
            None if imprint.property_digest is None else imprint.property_digest.hex(),
            len(having),
            (("tap", 0, arrival.sequence_number or 0),),
            expected=expected,
            arrived=tuple(having),
        )

    def _arrival(self, source: Input, draft: Draft, content: bytes) -> tuple[TaskFile, Arrival]:
        file = next(task for task in self.tasks if task.task == source.task)
        hub = self.sites[source.site].namespace.hubs.get(source.entity)
        partition = None if hub is None else hub.partition_for(draft.key).partition_id
        return file, Message.received(content, Origin(source.site, file.source.entity, partition)).arrival

    def _choose(self) -> None:
        """Decide what is replayed: all that a task has carried, or a part of it."""
        chance = self.chance
        source = chance.choice([source for source in self.topology.inputs if self.has_copies(source)])
        drafts = [draft for draft in self.accepted if draft.input is source]
        arrivals = {
            draft.name: self._arrival(source, draft, content)[1]
            for draft, content in zip(drafts, self.seen.get(source, ()), strict=True)
        }
        first, last, partitions = Position(), Position(), list[str]()
        choice = chance.random()
        if arrivals and choice < 0.3:
            first, last = sorted(
                Position(arrival.enqueued_time) for arrival in chance.choices([*arrivals.values()], k=2)
            )
        elif arrivals and choice < 0.6:
            chosen = chance.choice([*arrivals.values()])
            first = Position(number=chosen.sequence_number)
            partitions = [chosen.origin.partition] if chosen.origin.partition is not None else []
        copies = [copy for copy in self.rerun.copies if copy.startswith(f"{source.site}/")]
        self.plan = Plan(source.task, "1", first, last, None, partitions, copies, consumer_group=GROUP)
        received = {
            str(line["message_id"])
            for line in lines_of(self)
            if line["task"] == source.task and line["outcome"] == "received" and line["observer"] == "task"
        }
        for name, arrival in arrivals.items():
            at = arrival.sequence_number, arrival.enqueued_time
            is_chosen = not partitions or arrival.origin.partition in partitions
            is_known = arrival.origin.partition is not None or name in received
            if is_chosen and is_known and first.is_before(*at) and last.is_after(*at):
                self.keys[name], self.numbers[name] = key_of(arrival), arrival.sequence_number

    # The operator

    def operator_ended(self, process: RerunProcess) -> None:
        """Let the operator look at what a run has reported, and begin another one."""
        self._process = None
        is_last = self.is_quiet and process.began_in_peace
        self._runs_after += is_last
        is_complete = not process.was_killed and self.is_complete(self.reports[-1])
        if is_last and (is_complete or self._runs_after >= _MOST_RUNS_AFTER):
            self._is_over = True
        elif self.is_quiet or not is_complete:
            self.network.later(self.chance.choice((0.0, 0.5, 5.0, 60.0)), self._run_command)

    def is_complete(self, report: RerunReport) -> bool:
        """Return whether nothing is left to do, except for messages of which there is no copy."""
        states = {each.state for each in report.reports}
        return report.error is None and not report.problems and states <= {*GOOD, State.LOST}

    def _run_command(self) -> None:
        if self._process is None and not self._is_over:
            self._runs += 1
            self._process = RerunProcess(self, self._runs, in_peace=self.is_quiet)
            self._process.start()

    # Everybody else

    def _heal_again(self) -> None:
        self._heal()
        self._run_command()

    def _disturb(self) -> None:
        chance = self.faults.chance
        drawn, choice = self._drawn(), chance.random()
        now = self.loop.time()
        if choice < 0.3:
            if not self.is_quiet and self.faults.happens("command killed", now, "world") and self._process is not None:
                self._process.kill()
        elif choice < 0.5:
            if not self.is_quiet and self.faults.happens("messages taken from a target", now, "world"):
                self._consume(drawn[2])
        else:
            self._happen(drawn._replace(seconds=min(drawn.seconds, _LONGEST_SECONDS)))

    def _consume(self, where: float) -> None:
        """Take the first messages from a target."""
        site, path = self.topology.places[int(where * len(self.topology.places))]
        namespace = self.sites[site].namespace
        if path in namespace.hubs:
            return
        store = namespace.store(path)
        for message in list(store.peek(0))[: self.chance.randrange(1, 4)]:
            self.deleted.setdefault((site, path), []).append(message.encode())
            store._forget(message)
