"""Clients of Azure's SDKs: by a connection string, or at an address with the app's identity."""

from collections.abc import Mapping
from inspect import iscoroutinefunction
from typing import Any

from shared.access.identity import async_credential, credential


def open_client[Client](
    client: type[Client],
    text: str | None,
    address: Mapping[str, str],
    *,
    identity: Any = None,  # noqa: ANN401 - a synchronous or an asynchronous one
    **options: Any,  # noqa: ANN401 - those of the SDK
) -> Client:
    """
    Return a client of the class *client* for the connection string *text*; without one, at *address*.

    It closes the identity that it uses there, which the SDKs leave open, unless the caller gives one. *address* has the
    argument that names the service.
    """
    opened: Any = client
    found: Client
    if text:
        found = opened.from_connection_string(text, **options)
    elif identity is not None:
        found = opened(**address, credential=identity, **options)
    else:
        own = async_credential() if iscoroutinefunction(opened.close) else credential()
        found = _closing(opened(**address, credential=own, **options), own)
    return found


def _closing[Client](client: Client, identity: Any) -> Client:  # noqa: ANN401 - as above
    """Return *client*, which from now on closes the *identity* too."""
    opened: Any = client
    close = opened.close

    async def close_both(**options: object) -> None:
        try:
            await close(**options)
        finally:
            await identity.close()

    def close_both_now(**options: object) -> None:
        try:
            close(**options)
        finally:
            identity.close()

    opened.close = close_both if iscoroutinefunction(close) else close_both_now
    return client
