"""The rights of a connection's peer, from the key that it names in SASL and the tokens it has put."""

from dataclasses import replace

from busway_broker import errors
from busway_broker.access import Access, Grant, path_of_resource
from busway_broker.config import Right
from busway_broker.core.namespace import Namespace
from busway_broker.errors import Refusal
from shared.amqp import sasl
from shared.amqp.errors import UNAUTHORIZED_ACCESS, AmqpError

MECHANISMS = ("ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS")


class Claims:
    """The grants of a connection; a namespace without keys requires none."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._access = Access.of(namespace)
        self._grants: dict[str, Grant] = {}
        self._audiences: set[str] = set()
        self.are_needed = self._access is not None
        """Whether the namespace requires any."""
        self.were_granted = self._access is None
        """Whether the peer has shown a valid token or key at any time, or needs none."""

    def authenticate(self, kind: int, body: bytes) -> bool:
        """Return whether a frame of SASL has a known mechanism and, for PLAIN, a valid key; else tokens follow."""
        _, fields = sasl.read(kind, body, sasl.INIT)
        mechanism = fields.required_text(0)
        if mechanism != "PLAIN":
            return mechanism in MECHANISMS
        try:
            _, name, key = (part.decode() for part in (fields.binary(1) or b"").split(b"\0"))
            self.put_key(name, key)
        except (ValueError, AmqpError):
            return not self.are_needed
        return True

    def put(self, token: str, audience: str) -> None:
        """Add a token for *audience*; a Refusal if it grants nothing, or is one too many."""
        path, limit = path_of_resource(audience), self._namespace.config.links.max_tokens
        if limit is not None and path not in self._audiences and len(self._audiences) >= limit:
            text = f"The maximum number of '{limit}' tokens per connection has been reached."
            raise Refusal(errors.RESOURCE_LIMIT_EXCEEDED, text)
        if self._access is not None:
            grant = self._access.by_signature(token, audience)
            # The JavaScript client that only manages an entity has a token for this node alone.
            self._grants[grant.path] = replace(grant, path=grant.path.removesuffix("/$management"))
            self.were_granted = True
        self._audiences.add(path)

    def check_exists(self, audience: str) -> None:
        """Raise Refusal(NOT_FOUND) if *audience* is no entity, in a namespace that has keys and creates no entities."""
        if self._access is not None and self._namespace.config.on_demand is None:
            self._namespace.check_exists(path_of_resource(audience))

    def put_key(self, name: str, key: str) -> None:
        """Add the name and key of SASL PLAIN; Refusal(UNAUTHORIZED_ACCESS) if they grant nothing."""
        if self._access is not None:
            grant = self._access.by_key(name, key)
            self._grants[grant.path] = grant
            self.were_granted = True

    def cover(self, path: str, rights: frozenset[Right]) -> bool:
        """Return whether the peer has one of *rights* for the entity at *path* now."""
        access = self._access
        return access is None or any(grant.covers(path, rights, access.now) for grant in self._grants.values())

    def check(self, path: str, rights: frozenset[Right]) -> None:
        """Raise Refusal(UNAUTHORIZED_ACCESS) unless the peer has one of *rights* for the entity at *path*."""
        if not self.cover(path, rights):
            raise refusal(path, rights)

    def check_request(self, path: str, token: str) -> None:
        """Raise Refusal(UNAUTHORIZED_ACCESS) unless the peer, or *token*, has some right for the entity at *path*."""
        access = self._access
        if access is None or any(grant.expires_at > access.now for grant in self._grants.values()):
            return
        if not token:
            raise refusal(path, frozenset(Right))
        access.by_signature(token, path)
        self.were_granted = True


def refusal(path: str, rights: frozenset[Right]) -> Refusal:
    """Return the refusal for a peer that does not have, or no longer has, one of *rights*."""
    names = ", ".join(sorted(rights))
    return Refusal(
        UNAUTHORIZED_ACCESS,
        f"Unauthorized access. '{names}' claim(s) are required to perform this operation. Resource: '{path}'.",
    )
