"""The verify editor: what is not as it was signed does not pass."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from shared.clock import Clock
from shared.editors.content.body import body_or_nothing
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames, covers, digest, listed
from shared.editors.protection.key_names import KeyName, check_key
from shared.editors.sign import BOUND, BOUND_DIGEST, SIGNATURE
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import BatchEditor, Withheld

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing


class VerifyOptions(Strict):
    """Which signature a message must have."""

    key: KeyName
    """Secret with the keys: a JSON Web Key, or a set of them; the signature names the one by its `kid`."""
    properties: BoundNames | None = None
    """Properties that it must be over, beside the body; all that it is over are compared in any case."""
    signature: Annotated[str, Field(min_length=1)] = SIGNATURE
    """Application property that has the signature."""
    remove: bool = False
    """Whether the signature is taken off what passes."""
    on_failure: Literal["reject", "drop"] = "reject"
    """`reject` sends the message to `rejects` with the reason, `drop` withholds it; both are journalled."""


class VerifyStep(Step):
    """
    Lets through what has a valid signature of `sign`, or of any other software, over body and properties.

    A message without one, with one of an unknown key (once the secret has been read anew), with one that is over, and
    one that was altered since are rejected, or withheld.
    """

    keeps_properties: ClassVar[bool] = True
    options: VerifyOptions = Field(alias="verify")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or takes off."""
        return frozenset((self.options.signature.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that does what the options say."""
        from shared.editors.protection.keys import Keyed, KeyRings  # noqa: PLC0415 - tasks without keys do not pay for the library

        check_key(task, "verify.key", self.options.key)
        drops = self.options.on_failure == "drop"
        verify = Verify(self.options, task.clock)
        return Keyed("verify", KeyRings(self.options.key, task.secrets), verify.edit, drops=drops)


class Verify:
    """Lets through a message whose signature is valid."""

    def __init__(self, options: VerifyOptions, clock: Clock) -> None:
        """Take the time from *clock*."""
        from shared.editors.protection.jws import verified_detached  # noqa: PLC0415 - see above

        self._verified = verified_detached
        self._required = options.properties or ()
        self._signature = options.signature
        self._removes = options.remove
        self._clock = clock

    def edit(self, message: Message, ring: "KeyRing") -> Message | Withheld:
        """Return *message*; raises MessageRejected where it is not as it was signed."""
        signature = message.application_property(self._signature)
        if signature is None or not isinstance(signature.payload, str):
            raise MessageRejected("SignatureMissing", f"has no signature in property {self._signature}")
        header = self._verified(signature.payload, body_or_nothing(message), ring)
        self._check_time(header.get("exp"))
        names = listed(header.get(BOUND))
        if not covers(names, self._required):
            raise MessageRejected("NotSigned", f"the signature does not cover {', '.join(self._required)}")
        if header.get(BOUND, names) != names or (names and header.get(BOUND_DIGEST) != digest(names, message)):
            raise MessageRejected("SignatureInvalid", "the signature does not match the properties")
        if self._removes:
            message.set_properties({self._signature: None})
        return message

    def _check_time(self, ends: object) -> None:
        if ends is None:
            return
        if not isinstance(ends, int | float) or isinstance(ends, bool):
            raise MessageRejected("SignatureInvalid", "the signature has an invalid expiry time (exp)")
        if self._clock.now().timestamp() >= ends:
            raise MessageRejected("SignatureExpired", "the signature has expired (exp)")
