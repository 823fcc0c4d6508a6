"""The app setting of a namespace of Service Bus or Event Hubs, and what all clients of namespaces share."""

import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from shared.access.client import open_client
from shared.access.setting_form import SettingForm

NAMESPACE_SUFFIX = "__fullyQualifiedNamespace"
ADMINISTRATION_SUFFIX = "__administration"
"""After the name of a setting: the address at which an emulator is administered, such as http://localhost:5300."""
_ENDPOINT = re.compile(r"Endpoint=\w+://([^/:;]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Namespace:
    """The value of an app setting or secret: a connection string, or a host name that an Azure identity opens."""

    name: str
    """Of the setting or secret."""
    connection_string: str | None = None
    fully_qualified_namespace: str | None = None

    @classmethod
    def of(cls, setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> Self:
        """Return the namespace that an app setting names, of which *hubs* are used; raises ConfigError."""
        text = SETTING_FORM.text(setting, settings, hubs)
        return cls(setting, text) if text else cls(setting, None, settings[setting + NAMESPACE_SUFFIX])

    def open[Client](self, client: type[Client], **options: Any) -> Client:
        """Return a client of the class *client* for it, with *options* of the SDK; see `open_client`."""
        address = {"fully_qualified_namespace": self.fully_qualified_namespace or ""}
        return open_client(client, self.connection_string, address, **options)

    @property
    def host_name(self) -> str:
        """Return the host name of the namespace, without a port."""
        if self.fully_qualified_namespace is not None:
            return self.fully_qualified_namespace
        match = _ENDPOINT.search(self.connection_string or "")
        return "" if match is None else match[1]

    def __repr__(self) -> str:
        """Show the name of the app setting and hide its value."""
        return f"Namespace({self.name!r})"


def connection_string_fault(text: str, hubs: Collection[str] = ()) -> tuple[str, str] | None:
    """
    Return the problem of a connection string and how to fix it; quotes only the name of its entity.

    It may have an EntityPath, like that of an IoT Hub endpoint, if the only one of *hubs* has that name: the hubs that
    are used with it.
    """
    from azure.servicebus import parse_connection_string  # noqa: PLC0415 - imports the SDK

    try:
        entity = parse_connection_string(text).entity_path
    except ValueError:
        # The SDK's error text may quote it.
        return (
            "is not a connection string",
            "expected Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY",
        )
    if entity and {hub.lower() for hub in hubs} != {entity.lower()}:
        expected = " and ".join(sorted(hubs)) or "a namespace"
        return f"names one entity, {entity}, expected {expected}", "remove EntityPath"
    return None


SETTING_FORM = SettingForm(
    connection_string_fault,
    f"set {{setting}} to a connection string or {{setting}}{NAMESPACE_SUFFIX} to the namespace's host name",
    NAMESPACE_SUFFIX,
)


def tls() -> ssl.SSLContext:
    """
    Return the TLS context of all clients, which is what the SDKs make for each connection.

    To read the authorities takes 10 to 40 ms of processor time, also for an emulator without TLS.
    """
    import certifi  # noqa: PLC0415 - only apps with a namespace need it

    return _trusting(certifi.where())


@cache
def _trusting(authorities: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authorities)
    return context
