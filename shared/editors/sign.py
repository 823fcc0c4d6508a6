"""The sign editor: a signature with which receivers can check a message and its sender."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from shared.clock import Clock
from shared.editors.content.body import body_or_nothing
from shared.editors.options import AS_WRITTEN, Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames, attach, digest
from shared.editors.protection.key_names import KeyId, KeyName, keyed
from shared.message.message import Message
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing

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


class SignStep(Step):
    """
    Signs the body and chosen properties: a detached JWS (RFC 7515 appendix F, RFC 7797) in an application property.

    Any JOSE library can verify it with the bytes of the body. The signed header has the names of the chosen properties
    (`bound`) and the digest of their canonical form (`bound_digest`).
    """

    keeps_properties: ClassVar[bool] = True
    options: SignOptions = Field(alias="sign")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or removes."""
        return frozenset((self.options.into.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        return keyed(task, "sign", self.options.key, Sign(self.options, task.clock).edit)


class Sign:
    """Signs a message with the newest key of a ring, or a named one."""

    def __init__(self, options: SignOptions, clock: Clock) -> None:
        """Take the time of signing from *clock*."""
        from shared.editors.protection.jws import signing_keys  # noqa: PLC0415 - only tasks with keys load the library

        self._key = signing_keys(options.kid)
        self._bound = options.properties or ()
        self._lifetime = options.lifetime
        self._into = options.into
        self._clock = clock

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* with its signature; raises MessageRejected, and TargetRefused for an unsuitable key."""
        header: dict[str, object] = {}
        if self._lifetime is not None:
            now = int(self._clock.now().timestamp())
            header |= {"iat": now, "exp": now + round(self._lifetime.total_seconds())}
        if self._bound:
            header |= {BOUND: self._bound, BOUND_DIGEST: digest(self._bound, message)}
        signature = self._key.of(ring).detached(body_or_nothing(message), header)
        attach(message, self._into, signature)
        return message
