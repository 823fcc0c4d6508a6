"""What the sites of failover.yaml hold, and whether they are available."""

from collections.abc import Iterable, Sequence

from busway_clients.senders.error_kinds import is_unavailable
from cli.failover.configuration import Failover
from cli.failover.entity_contents import EntityContents, check_access, dead_letter_queues, inspect_entities
from shared.errors import ConfigError, Problem, TargetUnavailable

type Contents = Sequence[EntityContents] | str
"""The contents of the entities of a site, or why they are unknown."""


async def inspect_site(failover: Failover, site: str) -> Contents:
    """Return the contents of the entities of failover.yaml at *site*; raises ConfigError if it cannot be opened."""
    return await _look(failover, site, failover.file.entities)


async def inspect_all(failover: Failover, site: str, problems: list[Problem]) -> Contents:
    """Return the contents of *site*, dead letters last; problems with its configuration are added to *problems*."""
    try:
        look = await inspect_site(failover, site)
        if isinstance(look, str):
            return look
        dead = (await inspect_dead_letters(failover, [site]))[site]
    except ConfigError as error:
        problems += error.problems
        return str(error)
    return dead if isinstance(dead, str) else [*look, *dead]


async def inspect_dead_letters(failover: Failover, sites: Iterable[str]) -> dict[str, Contents]:
    """Return the contents of the dead-letter queues of these entities at *sites*, without empty ones."""
    queues = dead_letter_queues(failover.file.entities)
    found = {site: await _look(failover, site, queues) for site in sites}
    return {
        site: held if isinstance(held, str) else [each for each in held if each.messages]
        for site, held in found.items()
    }


async def check_primary(failover: Failover) -> None:
    """Raise TargetUnavailable if the primary site cannot be read: applications must not be moved to it then."""
    primary = failover.file.primary
    try:
        await check_access(primary, failover.file.entities, lambda: failover.client(primary))
    except TargetUnavailable as error:
        raise TargetUnavailable(_why(primary, error)) from error


async def _look(failover: Failover, site: str, entities: Sequence[str]) -> Contents:
    primary = failover.path_name(failover.file.primary)
    try:
        return await inspect_entities(site, entities, primary, lambda: failover.client(site))
    except TargetUnavailable as error:
        return _why(site, error)


def _why(site: str, error: TargetUnavailable) -> str:
    if error.__cause__ is not None and is_unavailable(error.__cause__):
        return f"{site} does not answer: {error}"
    return f"{error}; {site} answers: check that the entity exists, and the right to listen"
