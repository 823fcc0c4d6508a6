"""Endpoints and tokens: what a connection string says, what is signed, what is kept out of texts."""

import asyncio
from typing import Any

import pytest
from azure.core.credentials import AccessToken, AzureNamedKeyCredential

from busway_clients import WrongUse
from busway_clients.relay import RelayEndpoint

AZURE = (
    "Endpoint=sb://west.servicebus.windows.net/;SharedAccessKeyName=both;SharedAccessKey=c2VjcmV0PQ==;EntityPath=hyco"
)


def signed(credential: Any) -> Any:
    return asyncio.run(RelayEndpoint("west.servicebus.windows.net", "hyco", credential).token(lambda: 1_000_000.0))


def test_connection_string_names_the_endpoint() -> None:
    endpoint = RelayEndpoint.from_connection_string(AZURE)
    url = endpoint.url("listen", AccessToken("to ken&=", 0))
    assert (url.scheme, url.host, url.explicit_port, url.path) == (
        "wss",
        "west.servicebus.windows.net",
        None,
        "/$hc/hyco",
    )
    assert url.query["sb-hc-action"] == "listen"
    assert url.query["sb-hc-token"] == "to ken&="
    assert len(url.query["sb-hc-id"]) == 36


def test_a_sender_adds_to_the_address() -> None:
    endpoint = RelayEndpoint("west.servicebus.windows.net", "area/hyco")
    url = endpoint.url("connect", None, "/orders/a b", {"customer": "7&8"})
    assert url.raw_path == "/$hc/area/hyco/orders/a%20b"
    assert url.query["customer"] == "7&8"
    assert "sb-hc-token" not in url.query
    assert endpoint.rest_of(url) == ("orders/a b", {"customer": "7&8"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no Endpoint"),
        ("Endpoint=west", "has no Endpoint"),
        ("Endpoint=sb://west/;SharedAccessKeyName=both;SharedAccessKey=c2VjcmV0", "the path is empty"),
        ("Endpoint=sb://west/;SharedAccessKey=c2VjcmV0;EntityPath=hyco", "has one of SharedAccessKeyName and"),
        ("Endpoint=sb://west/;EntityPath=/", "the path is empty"),
    ],
)
def test_incomplete_connection_string_is_reported_without_its_key(text: str, expected: str) -> None:
    with pytest.raises(WrongUse, match=expected) as caught:
        RelayEndpoint.from_connection_string(text)
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize("host", ["", "https://west", "west/hyco", "user@west"])
def test_an_invalid_host_is_reported(host: str) -> None:
    with pytest.raises(WrongUse, match="the host of a relay"):
        RelayEndpoint(host, "hyco")


def test_query_names_of_the_protocol_are_reserved() -> None:
    with pytest.raises(WrongUse, match="has sb-hc-action, expected no name"):
        RelayEndpoint("west", "hyco").url("connect", None, "", {"sb-hc-action": "listen"})


def test_the_signature_is_that_of_the_documentation() -> None:
    # Made with openssl: printf '%s\n%s' <resource, encoded> 1003600 | openssl dgst -sha256 -hmac <key> -binary | base64
    token = signed(AzureNamedKeyCredential("both", "c2VjcmV0PQ=="))
    assert token.expires_on == 1_003_600
    assert token.token == (
        "SharedAccessSignature sr=http%3A%2F%2Fwest.servicebus.windows.net%2Fhyco"
        "&sig=6kZyVeQUNboulWZiIYUr47fsIWSPQ5amS9ain43%2BveQ%3D&se=1003600&skn=both"
    )
    ready_made = f"Endpoint=sb://west/;EntityPath=hyco;SharedAccessSignature={token.token}"
    assert signed(RelayEndpoint.from_connection_string(ready_made).credential) == token


class Credential:
    def get_token(self, *scopes: Any) -> AccessToken:
        return AccessToken(f"token for {' '.join(scopes)}", 1_003_600)


class AsyncCredential:
    async def get_token(self, *scopes: Any) -> AccessToken:
        return AccessToken(f"token for {' '.join(scopes)}", 1_003_600)


@pytest.mark.parametrize("credential", [Credential(), AsyncCredential()])
def test_an_identity_gives_tokens_for_relays(credential: Any) -> None:
    assert signed(credential) == ("token for https://relay.azure.net/.default", 1_003_600)


def test_an_endpoint_prints_no_key() -> None:
    assert "c2VjcmV0" not in repr(RelayEndpoint.from_connection_string(AZURE))
