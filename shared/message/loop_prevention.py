"""
Loop prevention: stops messages that would return to a site.

A message is never sent to a site on its repl-path, nor over more hops than the task allows. It needs no rule in the
broker, and works in rings too, where a mark such as `replication = 1` does not.
"""

from dataclasses import dataclass

from shared.message.message import Message
from shared.message.metadata import visited_sites

DEFAULT_MAX_HOPS = 4


@dataclass(frozen=True)
class LoopGuard:
    """The loop prevention of one task."""

    max_hops: int = DEFAULT_MAX_HOPS

    def objection(self, visited: list[str], target_site: str) -> str | None:
        """Return why a message that has left the *visited* sites must not be sent to *target_site*, or None."""
        if not visited:
            return None
        if target_site in visited:
            return f"site {target_site} is on its path {';'.join(visited)}"
        if len(visited) >= self.max_hops:
            return f"it has made {len(visited)} hops, the task allows {self.max_hops}"
        return None


def path_before(message: Message) -> list[str]:
    """Return the sites that *message* had left before it arrived here; call it before the message is stamped."""
    if message.sections.application_properties.find(b"repl-path") < 0:  # faster than "in", see shared.message.metadata
        return []
    return visited_sites(message)
