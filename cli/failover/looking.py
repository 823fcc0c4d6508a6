"""Looking at the sites of failover.yaml: what they hold, and whether they are there."""

from collections.abc import Iterable, Sequence

from busway_clients.senders.error_kinds import is_unavailable
from cli.failover.holdings import Holding, answers, dead_letters, holdings
from cli.failover.opening import Failover
from shared.errors import TargetUnavailable

type Look = Sequence[Holding] | str
"""What a site holds, or why that cannot be said."""


async def looked_at(failover: Failover, site: str) -> Look:
    """Return what the entities of failover.yaml hold at *site*; raises ConfigError if it cannot be opened."""
    return await _look(failover, site, failover.file.entities)


async def dead_lettered(failover: Failover, sites: Iterable[str]) -> dict[str, Look]:
    """Return what is in the dead-letter queues of these entities at *sites*, those that are empty left out."""
    queues = dead_letters(failover.file.entities)
    found = {site: await _look(failover, site, queues) for site in sites}
    return {
        site: held if isinstance(held, str) else [each for each in held if each.messages]
        for site, held in found.items()
    }


async def primary_answers(failover: Failover) -> None:
    """Raise TargetUnavailable if it does not: whoever is sent to it has no other place to go."""
    primary = failover.file.primary
    try:
        await answers(primary, failover.file.entities, lambda: failover.client(primary))
    except TargetUnavailable as error:
        raise TargetUnavailable(_why(primary, error)) from error


async def _look(failover: Failover, site: str, entities: Sequence[str]) -> Look:
    primary = failover.path_name(failover.file.primary)
    try:
        return await holdings(site, entities, primary, lambda: failover.client(site))
    except TargetUnavailable as error:
        return _why(site, error)


def _why(site: str, error: TargetUnavailable) -> str:
    if error.__cause__ is not None and is_unavailable(error.__cause__):
        return f"{site} does not answer: {error}"
    return f"{error}; {site} answers: is the entity there, with the right to listen?"
