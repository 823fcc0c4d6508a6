"""Endpoints and tokens: what a connection string says, what is signed, what is kept out of texts."""

import asyncio
from typing import Any

import pytest
from azure.core.credentials import AccessToken

from busway_clients import WrongUse
from busway_clients.relay import Identity, RelayEndpoint, SharedAccessKey, SharedAccessSignature, Token

AZURE = (
    "Endpoint=sb://west.servicebus.windows.net/;SharedAccessKeyName=both;SharedAccessKey=c2VjcmV0PQ==;EntityPath=hyco"
)


def token_of(tokens: Any, now: float = 1_000_000.0) -> Any:
    return asyncio.run(tokens.token("http://west.servicebus.windows.net/hyco", now))


def test_connection_string_names_the_endpoint() -> None:
    endpoint = RelayEndpoint.from_connection_string(AZURE)
    url = endpoint.url("listen", Token("to ken&=", 0.0))
    assert (url.scheme, url.host, url.explicit_port, url.path) == (
        "wss",
        "west.servicebus.windows.net",
        None,
        "/$hc/hyco",
    )
    assert url.query["sb-hc-action"] == "listen"
    assert url.query["sb-hc-token"] == "to ken&="
    assert len(url.query["sb-hc-id"]) == 36
    assert endpoint.resource == "http://west.servicebus.windows.net/hyco"


def test_a_sender_adds_to_the_address() -> None:
    endpoint = RelayEndpoint("west.servicebus.windows.net", "area/hyco", authorization="header")
    url = endpoint.url("connect", Token("token", 0.0), "/orders/a b", {"customer": "7&8"})
    assert url.raw_path == "/$hc/area/hyco/orders/a%20b"
    assert url.query["customer"] == "7&8"
    assert "sb-hc-token" not in url.query
    assert endpoint.rest_of(url) == ("orders/a b", {"customer": "7&8"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no Endpoint"),
        ("Endpoint=west", "has no Endpoint"),
        ("Endpoint=sb://west/;SharedAccessKeyName=both;SharedAccessKey=c2VjcmV0", "no path and no EntityPath"),
        ("Endpoint=sb://west/;SharedAccessKey=c2VjcmV0;EntityPath=hyco", "has one of SharedAccessKeyName and"),
        ("Endpoint=sb://west/;SharedAccessSignature=c2VjcmV0;EntityPath=hyco", "has no expiry"),
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
    token = token_of(SharedAccessKey("both", "c2VjcmV0PQ=="))
    assert token.expires_at == 1_003_600
    assert token.text == (
        "SharedAccessSignature sr=http%3A%2F%2Fwest.servicebus.windows.net%2Fhyco"
        "&sig=6kZyVeQUNboulWZiIYUr47fsIWSPQ5amS9ain43%2BveQ%3D&se=1003600&skn=both"
    )


def test_a_ready_made_token_is_sent_as_it_is() -> None:
    text = token_of(SharedAccessKey("both", "c2VjcmV0PQ==")).text
    assert token_of(SharedAccessSignature(text)) == (text, 1_003_600.0)


class Credential:
    def get_token(self, *scopes: Any) -> AccessToken:
        return AccessToken(f"token for {' '.join(scopes)}", 1_003_600)


class AsyncCredential:
    async def get_token(self, *scopes: Any) -> AccessToken:
        return AccessToken(f"token for {' '.join(scopes)}", 1_003_600)


@pytest.mark.parametrize("credential", [Credential(), AsyncCredential()])
def test_an_identity_gives_tokens_for_relays(credential: Any) -> None:
    assert token_of(Identity(credential)) == ("token for https://relay.azure.net/.default", 1_003_600)


def test_nothing_prints_a_key_or_a_token() -> None:
    endpoint = RelayEndpoint.from_connection_string(AZURE)
    token = token_of(endpoint.tokens)
    assert "c2VjcmV0" not in repr(endpoint)
    assert repr(token) == "Token(expires_at=1003600)"
