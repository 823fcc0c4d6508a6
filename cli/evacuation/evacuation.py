"""The evacuation of one entity: its shares one after the other, again until nothing is left that can be moved."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cli.evacuation.move import MoveDelivery, PlacementDelivery
from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import DeferredReceiver, MovingReceiver, Sessions, TargetReceivers
from cli.evacuation.schedule import ScheduleDelivery, ScheduledSource
from cli.evacuation.survey import Share, survey
from cli.letters.ledger_file import LedgerFile, ledger_of
from cli.progress import progress
from shared.errors import BuswayError
from shared.protocols import Output
from shared.resend.ledger import Ledger
from shared.resend.numbering import cancel_marks
from shared.resend.options import Options
from shared.resend.peek import keys_in
from shared.resend.places import Place, Scene
from shared.resend.receiver import management_of
from shared.resend.run import NOT_REACHED, Result, Run
from shared.resend.source import OpenSource, Supply
from shared.tasks.files import Configuration


@dataclass
class EvacuationResult:
    """What happened to the messages of an entity."""

    moved: Counter[Share] = field(default_factory=Counter)
    left: dict[tuple[Share, str], str] = field(default_factory=dict)
    """Why a message stays, by what it is and its key."""
    gone: int = 0
    states: int = 0
    """Sessions whose state was moved."""
    left_states: dict[str, str] = field(default_factory=dict)
    error: BuswayError | None = None
    is_stopped: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left."""
        return not self.left and not self.left_states and self.error is None and not self.is_stopped

    def add(self, share: Share, result: Result) -> None:
        """Add the result of a run over one share."""
        self.moved[share] += result.sent + result.sent_before
        self.gone += result.gone
        self.left |= {(share, key): reason for key, reason in result.left.items()}
        self.error = self.error or result.error
        self.is_stopped = self.is_stopped or result.is_stopped


@dataclass
class Evacuation:
    """Moves the messages of one entity; the ledgers are in *folder*."""

    pair: Pair
    configuration: Configuration
    settings: Mapping[str, str]
    options: Options
    folder: Path
    result: EvacuationResult = field(default_factory=EvacuationResult)
    ledgers: dict[Place, Ledger] = field(default_factory=dict)
    _run: Run | None = None
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _targets: TargetReceivers = field(init=False)
    _sessions: Sessions = field(init=False)

    def stop(self) -> None:
        """End after the step that is under way."""
        self._stopping.set()
        self.result.is_stopped = True
        if self._run is not None:
            self._run.stop()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Lock the ledgers; raises ConfigError if another process has one."""
        source = self.pair.source
        async with contextlib.AsyncExitStack() as stack:
            for place in (source,) if self.pair.is_topic else (source, source.dead_letters()):
                ledger = Ledger(LedgerFile(ledger_of(place, self.folder)), str(place).lower())
                self.ledgers[place] = await stack.enter_async_context(ledger)
            self._targets = TargetReceivers(self.pair.target, self.settings)
            self._sessions = Sessions(self.pair, self.settings, self.ledgers[source], self._targets)
            stack.push_async_callback(self._targets.close)
            yield

    async def run(self, outputs: Mapping[str, Output]) -> EvacuationResult:
        """Move the messages; errors are in the result, the rest is for the next run."""
        result = self.result
        try:
            while not self._is_over():
                found = await survey(self.pair, self.settings, result.left)
                async with self._scheduling(outputs) as scheduling:
                    await scheduling.recognise(found)
                result.left |= found.left
                for share, wanted in found.shares.items():
                    if wanted and not self._is_over():
                        await self._move_share(share, wanted, outputs)
                if not found.count and not found.due:
                    if self.pair.requires_session and not self.pair.forwards:
                        result.states = await self._sessions.finish(found.sessions)
                        result.left_states = self._sessions.left
                        await self._targets.close()
                    return result
                if not found.count:
                    seconds = max(found.due.values()) / 1000 - time.time() + 1
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._stopping.wait(), max(seconds, 1.0))
            rest = await survey(self.pair, self.settings, result.left)
            not_reached = [(share, key) for share, wanted in rest.shares.items() for key in wanted]
            not_reached += [(Share.SCHEDULED, key) for key in rest.due]
            result.left |= rest.left | dict.fromkeys(not_reached, NOT_REACHED)
        except BuswayError as error:
            result.error = result.error or error
        return result

    async def note_finished(self) -> None:
        """End the round in the ledgers: the next verdicts are of what moves from now on."""
        for place, ledger in self.ledgers.items():
            await cancel_marks(Scene(place, self.configuration, self.settings), ledger)
            await ledger.note_finished()

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.result.error is not None

    async def _move_share(self, share: Share, wanted: Mapping[str, str | None], outputs: Mapping[str, Output]) -> None:
        source = self.pair.source
        place = source.dead_letters() if share is Share.DEAD else source
        ledger, scene = self.ledgers[place], Scene(place, self.configuration, self.settings)
        ledger.share = share
        async with contextlib.AsyncExitStack() as stack:
            delivery: MoveDelivery
            open_source: OpenSource
            if share is Share.SCHEDULED:
                delivery = scheduling = await stack.enter_async_context(self._scheduling(outputs))
                open_source = lambda _: ScheduledSource(place, self.settings, wanted, scheduling)  # noqa: E731
            else:
                kind = partial(DeferredReceiver, wanted=wanted) if share is Share.DEFERRED else MovingReceiver
                open_source = partial(self._sessions.opened, partial(kind, place, self.settings, self._targets))
                if share is Share.ACTIVE:
                    delivery = MoveDelivery(self.pair, share, scene, ledger, outputs)
                else:
                    placing = partial(PlacementDelivery, targets=self._targets, patience=self.options.patience)
                    delivery = placing(self.pair, share, scene, ledger, outputs)
            by_session = self.pair.requires_session and share in (Share.ACTIVE, Share.DEFERRED)
            supply = Supply(open_source, by_session, partial(keys_in, place, self.settings))
            self._run = Run(supply, delivery, wanted, self.options)
            self._run.progress = stack.enter_context(progress(f"{share} moved", len(wanted)))
            self.result.add(share, await self._run.run())
            self._run = None
            # The session at the target is free for its applications.
            await self._targets.close()

    @contextlib.asynccontextmanager
    async def _scheduling(self, outputs: Mapping[str, Output]) -> AsyncIterator[ScheduleDelivery]:
        source = self.pair.source
        self.ledgers[source].share = Share.SCHEDULED
        scene = Scene(source, self.configuration, self.settings)
        async with management_of(self.pair.target, self.settings) as target:
            yield ScheduleDelivery(self.pair, scene, self.ledgers[source], outputs, target)
