"""Tokens of the app's identity, with which clients of Kafka sign in to the endpoint of Event Hubs."""

from collections.abc import Callable
from typing import Any

from shared.ends.kafka.endpoint import TOKENS, KafkaEndpoint

_LONGEST_TEXT = 200


class Tokens:
    """The callback of librdkafka that requests tokens for a namespace; it is called in a thread of librdkafka."""

    def __init__(self, namespace: str, open_identity: Callable[[], Any]) -> None:
        """Request tokens for *namespace*, a host name."""
        self.error: str | None = None
        """Why there was no token, in the identity's words."""
        self._scope = f"https://{namespace}/.default"
        self._identity = open_identity()

    def __call__(self, _config: str) -> tuple[str, float]:
        """Return a token and its end, to librdkafka."""
        return self.request()

    def request(self) -> tuple[str, float]:
        """Return a token and its end; raises what the identity raises."""
        try:
            found = self._identity.get_token(self._scope)
        except Exception as error:
            self.error = str(error).partition("\n")[0][:_LONGEST_TEXT]
            raise
        self.error = None
        return found.token, float(found.expires_on)


def client_options(endpoint: KafkaEndpoint, identity: Callable[[], Any]) -> tuple[dict[str, object], Tokens | None]:
    """Return the options of librdkafka for an endpoint, and the tokens with which it signs in if it has no password."""
    options = endpoint.options()
    if endpoint.mechanism != TOKENS:
        return options, None
    tokens = Tokens(endpoint.namespace, identity)
    return options | {"oauth_cb": tokens}, tokens
