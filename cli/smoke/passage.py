"""
One message on its way: sent to the source, watched for at the target.

If it does not show there, the places on its way, the journal and the state of its task say what stopped it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cli.journal import hours_between, journal_files
from cli.smoke.probes import Probe, Report, Verdict
from cli.smoke.watches import Watch, is_of, places_on_the_way, started
from shared.assembly.status import StatusReader
from shared.errors import BuswayError, ConfigError
from shared.journal.hops import Hop, hops
from shared.journal.search import search
from shared.protocols import Outcome, Output
from shared.resend.peek import peek
from shared.status.model import State
from shared.tasks.files import Configuration

_LOOK_SECONDS = 0.2
# Peeking shows most messages at once; the journal is read less often, and only if they do not show.
_JOURNAL_AFTER, _JOURNAL_EVERY = 3.0, 5.0
# A topic distributes what it has accepted seconds later; what shows then is removed again.
_DISTRIBUTED_AFTER = 10.0
_SEND_SECONDS = 20.0


@dataclass
class Passages:
    """The messages of one run, which go out through *outputs*; the journal is that of the configuration in *folder*."""

    configuration: Configuration
    folder: Path
    settings: Mapping[str, str]
    outputs: Mapping[str, Output]
    run: str

    def __post_init__(self) -> None:
        self._unread = None if self.configuration.journal is not None else "the app has no journal"
        """Why the journal cannot be read."""

    async def pass_through(self, probe: Probe, watches: Sequence[Watch], wait: float) -> Report:
        """Send *probe*, wait until one of *watches* sees it, and report; raises nothing of one route only."""
        is_sent = False
        try:
            async with started(watches):
                source, message = probe.route.task.source, [probe.outgoing]
                output = self.outputs[source.connection]
                (refusal,) = await output.send(source.sent_to, message, timeout_seconds=_SEND_SECONDS)
                is_sent = refusal is None
                if refusal is not None:
                    return Report(probe.route, Verdict.NOT_SENT, str(refusal))
                return await self._watched(probe, watches, wait)
        except ConfigError as error:
            return Report(probe.route, Verdict.NOT_SENT, "; ".join(map(str, error.problems)))
        except BuswayError as error:
            if not is_sent:
                return Report(probe.route, Verdict.NOT_SENT, str(error))
            return Report(probe.route, Verdict.NOT_ARRIVED, str(error), message_id=probe.message_id)

    async def _watched(self, probe: Probe, watches: Sequence[Watch], wait: float) -> Report:
        begin = time.monotonic()
        is_distributed = bool(watches) and probe.route.target.topic is not None
        journal_at = begin + (_DISTRIBUTED_AFTER if is_distributed else _JOURNAL_AFTER)
        while True:
            for watch in watches:
                if any(is_of(letter, probe, self.run) for letter in await watch.look()):
                    seen, seconds = f"seen at {_name(watch)}", time.monotonic() - begin
                    return Report(probe.route, Verdict.ARRIVED, seen, seconds, probe.message_id)
            now = time.monotonic()
            if now >= min(journal_at, begin + wait):
                hop = await self._hop(probe)
                outcome = None if hop is None else hop.outcome
                if hop is not None and outcome is not None and outcome["outcome"] == Outcome.SENT:
                    detail = (
                        f"journal: sent to {outcome.get('target')}; not seen there, so a consumer may have taken it"
                    )
                    taken = (int(outcome["journal_time"]) - hop.began) / 1_000_000
                    return Report(probe.route, Verdict.ACCEPTED, detail, taken, probe.message_id)
                has_ended = outcome is not None and outcome["outcome"] != Outcome.RETRY
                if has_ended or now >= begin + wait:
                    why = "; ".join([each async for each in self._facts(probe)])
                    detail = f"not at {' or '.join(map(_name, watches)) or 'its target'}; {why}"
                    seconds = time.monotonic() - begin
                    return Report(probe.route, Verdict.NOT_ARRIVED, detail, seconds, probe.message_id)
                journal_at = time.monotonic() + _JOURNAL_EVERY
            await asyncio.sleep(_LOOK_SECONDS)

    async def _hop(self, probe: Probe) -> Hop | None:
        """Return what the journal has of *probe* in its task, None if nothing; `_unread` then says if it is unread."""
        if self._unread is not None:
            return None
        now = datetime.now(UTC)
        hours = hours_between(now - timedelta(hours=1), now)

        def read() -> list[Hop]:
            return hops(search(journal_files(None, self.folder, hours), probe.message_id).records)

        try:
            found = await asyncio.to_thread(read)
        except BuswayError as error:
            self._unread = f"the journal cannot be read: {error}"
            return None
        return next((hop for hop in found if hop.place.task == probe.route.task.task), None)

    async def _facts(self, probe: Probe) -> AsyncGenerator[str]:
        """Yield what is known about a message that has not arrived."""
        task = probe.route.task
        for place in places_on_the_way(task, self.configuration):
            try:
                async with contextlib.aclosing(peek(place, self.settings)) as letters:
                    found = [letter async for letter, _ in letters if is_of(letter, probe, self.run)]
            except BuswayError as error:
                yield str(error)
                continue
            for letter in found:
                described = "" if letter.description is None else f": {letter.description}"
                waits = place.entity == task.source.entity
                why = "where it still waits" if waits else f"given up: {letter.reason}{described}"
                yield f"it is in {place}, {why}"
        hop = await self._hop(probe)
        if hop is not None:
            outcome = hop.outcome or {}
            reason = outcome.get("reason")
            what = outcome.get("outcome", "received, without an outcome")
            yield f"journal: {what}" + ("" if reason is None else f", {reason}")
        else:
            yield self._unread or "journal: no record of it"
        reader = StatusReader(self.configuration, self.settings)
        try:
            (status,) = (await reader.read([task.task])).tasks
        finally:
            await reader.close()
        if status.reason is not None or status.state not in {State.IDLE, State.RUNNING}:
            yield f"the task is {status.state.value}" + ("" if status.reason is None else f": {status.reason}")


def _name(watch: Watch) -> str:
    return f"{watch.place.site}/{watch.place.entity}"
