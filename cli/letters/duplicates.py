"""The duplicate windows of entities, from the administration API."""

from datetime import timedelta

from cli.topology.sites import Access, open_client
from shared.ends.service_bus.administration import duplicate_window, translating
from shared.resend.places import Destination
from shared.resend.routing import Window, WindowOf, window_by
from shared.tasks.files import Configuration


def window_by_administration(configuration: Configuration, access: Access) -> WindowOf:
    """Return a function that asks the administration API; it raises ConfigError if there is no answer."""

    async def window_of(destination: Destination) -> Window:
        connection = configuration.connections[destination.alias]

        def ask() -> timedelta | None:
            with translating(str(destination)), open_client(destination.alias, connection, access) as client:
                return duplicate_window(client, destination.entity)

        hint = "--new-ids gives the copies other ids; --same-ids sends them as they are"
        return await window_by(ask, destination, hint) if connection.end.has_dead_letters else None

    return window_of
