"""The duplicate windows of entities, from the administration API."""

from azure.core.exceptions import AzureError

from cli.topology.sites import Access, open_client
from shared.azure.administration import DoesNotExist, duplicate_window, translated
from shared.config.files import Configuration
from shared.dead_letters.duplicates import Window, WindowOf, missing
from shared.dead_letters.places import Destination
from shared.errors import BuswayError, ConfigError, Problem


def window_by_administration(configuration: Configuration, access: Access) -> WindowOf:
    """Return a function that asks the administration API; it raises ConfigError if there is no answer."""

    def window_of(destination: Destination) -> Window:
        connection = configuration.connections[destination.alias]
        if connection.kind != "service-bus":
            return None
        try:
            with open_client(destination.alias, connection, access) as client:
                return duplicate_window(client, destination.entity)
        except (AzureError, BuswayError) as error:
            reason = translated(error, str(destination)) if isinstance(error, AzureError) else error
            if isinstance(reason, DoesNotExist):
                return missing(destination)
            what = f"it is not known whether it detects duplicates and would drop copies: {reason}"
            hint = "--new-ids gives the copies other ids; --same-ids sends them as they are"
            raise ConfigError([Problem(str(destination), what, hint)]) from error

    return window_of
