"""The sign editor: who receives a message can tell that it is whole, and whose it is."""

from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from shared.clock import Clock
from shared.editors.content.body import body_or_nothing
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames, attach, digest
from shared.editors.protection.key_names import KeyId, KeyName, check_key
from shared.message.message import Message
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing

SIGNATURE = "repl-signature"
BOUND = "bound"
BOUND_DIGEST = "bound_digest"


class SignOptions(Strict):
    """What is signed, and with which key."""

    key: KeyName
    """Secret with the key: a JSON Web Key, or a set of them, of which the last is the newest and is taken."""
    kid: KeyId | None = None
    """Id of another key of the set to be taken."""
    properties: BoundNames | None = None
    """Application properties, and broker properties as sys.MessageId, that the signature is over beside the body."""
    lifetime: Annotated[timedelta, Field(strict=False, gt=timedelta(0))] | None = None
    """ISO 8601 duration after which the signature is not valid any more; it is for ever if not given."""
    into: Annotated[str, Field(min_length=1)] = SIGNATURE
    """Application property that takes the signature."""


class SignStep(Step):
    """
    Signs the body and chosen properties: a detached JWS (RFC 7515 appendix F, RFC 7797) in an application property.

    Any JOSE library verifies it over the bytes of the body. Chosen properties are in the signed header: their names
    (`bound`) and the digest of their canonical spelling (`bound_digest`).
    """

    keeps_properties: ClassVar[bool] = True
    options: SignOptions = Field(alias="sign")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or takes off."""
        return frozenset((self.options.into.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that does what the options say."""
        from shared.editors.protection.keys import Keyed, KeyRings  # noqa: PLC0415 - tasks without keys do not pay for the library

        check_key(task, "sign.key", self.options.key)
        return Keyed("sign", KeyRings(self.options.key, task.secrets), Sign(self.options, task.clock).edit)


class Sign:
    """Signs a message with the newest key of a ring, or a named one."""

    def __init__(self, options: SignOptions, clock: Clock) -> None:
        """Take the time of signing from *clock*."""
        from shared.editors.protection.jws import signing_keys  # noqa: PLC0415 - see above

        self._key = signing_keys(options.kid)
        self._bound = options.properties or ()
        self._lifetime = options.lifetime
        self._into = options.into
        self._clock = clock

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* with its signature; raises MessageRejected, and TargetRefused for a key that is not fit."""
        header: dict[str, object] = {}
        if self._lifetime is not None:
            now = int(self._clock.now().timestamp())
            header |= {"iat": now, "exp": now + round(self._lifetime.total_seconds())}
        if self._bound:
            header |= {BOUND: self._bound, BOUND_DIGEST: digest(self._bound, message)}
        signature = self._key.of(ring).detached(body_or_nothing(message), header)
        attach(message, self._into, signature)
        return message
