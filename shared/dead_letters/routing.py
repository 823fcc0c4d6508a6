"""Where messages go that are sent again."""

from shared.config.files import Configuration
from shared.dead_letters.delivery import Routing
from shared.dead_letters.letters import Letter
from shared.dead_letters.places import Destination, Place, destination_named, original


def routing_of(place: Place, configuration: Configuration, to: str | None, hint: str) -> Routing:
    """
    Return the routing of the messages of *place*: to CONNECTION/ENTITY, or if that is None to where they came from.

    *hint* is what to do if that is not known. Raises ConfigError.
    """
    if to is not None:
        destination = destination_named(to, configuration)
        return lambda _: destination

    def back(letter: Letter) -> Destination | str:
        if letter.source is None:
            return f"does not say where it came from: {hint}"
        site, path = letter.source
        found = original(path, site, configuration, prefer=place.alias)
        return f"{found}: {hint}" if isinstance(found, str) else found

    return back
