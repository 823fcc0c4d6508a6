"""The namespace of a place, by its connection string or for an Azure identity."""

import os
from urllib.parse import unquote, urlsplit

from cli.places import Place, required_setting
from shared.ends.namespace import Namespace
from shared.errors import ConfigError, Problem


def namespace_of(place: Place) -> Namespace:
    """Return the namespace of *place*, with what the app setting has of it; raises ConfigError."""
    setting = place.connection.setting
    end = place.connection.end
    if end.unreached is not None:
        raise ConfigError([Problem(str(place), *end.unreached)])
    if not end.is_namespace:
        return Namespace(place.alias, _replacement(place, os.environ.get(setting or "", "")))
    return Namespace.of(required_setting(setting, str(place)), os.environ, [place.path] if place.is_hub else [])


def _replacement(place: Place, url: str) -> str:
    """Return the connection string of the local broker's namespace that replaces a broker of kind amqp."""
    found = urlsplit(url)
    if found.scheme != "amqp" or found.username is None:
        hint = "use a client of the broker; this command reaches only what `busway start` puts in its place"
        raise ConfigError([Problem(str(place), "is of kind amqp", hint)])
    key = f"SharedAccessKeyName={unquote(found.username)};SharedAccessKey={unquote(found.password or '')}"
    return f"Endpoint=sb://{found.hostname}:{found.port};{key};UseDevelopmentEmulator=true"
