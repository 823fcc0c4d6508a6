"""One message on its way: sent to the source, watched for at the target."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cli.smoke.evidence import Journal, obstacle
from cli.smoke.probes import Probe, Route
from cli.smoke.watches import Watch, is_of, started
from shared.errors import BuswayError, ConfigError
from shared.protocols import Outcome, Output
from shared.tasks.files import Configuration

_LOOK_SECONDS = 0.2
# Peeking shows most messages at once; the journal is read less often, and only if they do not show.
_JOURNAL_AFTER, _JOURNAL_EVERY = 3.0, 5.0
_SEND_SECONDS = 20.0


class Verdict(StrEnum):
    """What is known about a route after its message."""

    ARRIVED = "arrived"
    ACCEPTED = "accepted"
    """The journal says that the target has accepted it, but a consumer was faster than the look at the target."""
    NOT_ARRIVED = "not arrived"
    NOT_SENT = "not sent"
    NOT_TRIED = "not tried"


GOOD = frozenset((Verdict.ARRIVED, Verdict.ACCEPTED))


@dataclass(frozen=True)
class Report:
    """The result for one route."""

    route: Route
    verdict: Verdict
    seconds: float | None = None
    detail: str = ""
    message_id: str | None = None


@dataclass(frozen=True)
class Surroundings:
    """What all messages of a run need."""

    configuration: Configuration
    settings: Mapping[str, str]
    outputs: Mapping[str, Output]
    journal: Journal
    run: str
    wait: float


async def passage(probe: Probe, watches: Sequence[Watch], around: Surroundings) -> Report:
    """Send *probe*, wait until one of *watches* sees it, and report; raises nothing that concerns one route only."""
    is_sent = False
    try:
        async with started(watches):
            refusal = await _send(probe, around)
            is_sent = refusal is None
            if refusal is not None:
                return Report(probe.route, Verdict.NOT_SENT, detail=refusal)
            return await _watched(probe, watches, around)
    except ConfigError as error:
        return Report(probe.route, Verdict.NOT_SENT, detail="; ".join(map(str, error.problems)))
    except BuswayError as error:
        if not is_sent:
            return Report(probe.route, Verdict.NOT_SENT, detail=str(error))
        return Report(probe.route, Verdict.NOT_ARRIVED, None, str(error), probe.message_id)


async def _send(probe: Probe, around: Surroundings) -> str | None:
    """Send *probe* to the source of its task; return why that failed, None if it is there."""
    source = probe.route.task.source
    output = around.outputs[source.connection]
    entity = source.queue or source.topic or source.hub or ""
    (error,) = await output.send(entity, [probe.outgoing], timeout_seconds=_SEND_SECONDS)
    return None if error is None else str(error)


async def _watched(probe: Probe, watches: Sequence[Watch], around: Surroundings) -> Report:
    begin = time.monotonic()
    journal_at = begin + _JOURNAL_AFTER
    while True:
        for watch in watches:
            for sight in await watch.look():
                if is_of(sight.letter, probe, around.run):
                    seconds = time.monotonic() - begin
                    where = f"seen at {sight.where}"
                    return Report(probe.route, Verdict.ARRIVED, seconds, where, probe.message_id)
        now = time.monotonic()
        if now >= min(journal_at, begin + around.wait):
            recorded = await around.journal.record(probe)
            if recorded is not None and recorded.outcome == Outcome.SENT:
                taken = None if recorded.milliseconds is None else recorded.milliseconds / 1000
                detail = f"journal: sent to {recorded.target}; not seen there, so a consumer may have taken it"
                return Report(probe.route, Verdict.ACCEPTED, taken, detail, probe.message_id)
            has_ended = recorded is not None and recorded.outcome not in {None, Outcome.RETRY}
            if has_ended or now >= begin + around.wait:
                return await _not_arrived(probe, watches, around, time.monotonic() - begin)
            journal_at = time.monotonic() + _JOURNAL_EVERY
        await asyncio.sleep(_LOOK_SECONDS)


async def _not_arrived(probe: Probe, watches: Sequence[Watch], around: Surroundings, seconds: float) -> Report:
    why = await obstacle(probe, around.journal, around.configuration, around.settings, around.run)
    detail = f"not at {' or '.join(map(_name, watches)) or 'its target'}; {why}"
    return Report(probe.route, Verdict.NOT_ARRIVED, seconds, detail, probe.message_id)


def _name(watch: Watch) -> str:
    return f"{watch.place.site}/{watch.place.entity}"
