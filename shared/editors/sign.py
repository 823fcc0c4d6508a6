"""The sign editor: a signature with which receivers can check a message and its sender."""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

from shared.editors.content.body import body_or_nothing
from shared.editors.options import AS_WRITTEN, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames, attach, digest
from shared.editors.protection.jws import SigningKey
from shared.editors.protection.key_names import KeyId, KeyName
from shared.editors.protection.keys import KeyedStep, KeyRing
from shared.message.message import Message

SIGNATURE = "repl-signature"
BOUND = "bound"
BOUND_DIGEST = "bound_digest"


class SignOptions(Strict):
    """What to sign, and with which key."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""
    properties: BoundNames | None = None
    """Application properties, and broker properties as sys.MessageId, that the signature covers besides the body."""
    lifetime: Annotated[timedelta, Field(strict=False, gt=timedelta(0)), AS_WRITTEN] | None = None
    """How long the signature is valid; by default without limit."""
    into: Annotated[str, Field(min_length=1)] = SIGNATURE
    """Application property for the signature."""


class SignStep(KeyedStep):
    """
    Signs the body and chosen properties: a detached JWS (RFC 7515 appendix F, RFC 7797) in an application property.

    Any JOSE library can verify it with the bytes of the body. The signed header has the names of the chosen properties
    (`bound`) and the digest of their canonical form (`bound_digest`).
    """

    options: SignOptions = Field(alias="sign")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or removes."""
        return frozenset((self.options.into.lower(),))

    def edit(self, message: Message, ring: KeyRing, task: TaskFacts) -> Message:
        """Return *message* with its signature, by the newest key of the ring, or a named one."""
        options = self.options
        header: dict[str, object] = {}
        if options.lifetime is not None:
            now = int(task.clock.now().timestamp())
            header |= {"iat": now, "exp": now + round(options.lifetime.total_seconds())}
        if options.properties:
            header |= {BOUND: options.properties, BOUND_DIGEST: digest(options.properties, message)}
        signature = ring.once(SigningKey, options.kid).detached(body_or_nothing(message), header)
        attach(message, options.into, signature)
        return message
