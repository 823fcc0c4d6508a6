"""The verify editor: lets only messages with a valid signature through."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from shared.clock import Clock
from shared.editors.content.body import body_or_nothing
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames, covers, digest, listed
from shared.editors.protection.key_names import KeyName, keyed
from shared.editors.sign import BOUND, BOUND_DIGEST, SIGNATURE
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import BatchEditor, Withheld

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing


class VerifyOptions(Strict):
    """The signature that a message must have."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set; the signature names its `kid`."""
    properties: BoundNames | None = None
    """Properties that it must cover, besides the body; all covered properties are always compared."""
    signature: Annotated[str, Field(min_length=1)] = SIGNATURE
    """Application property with the signature."""
    remove: bool = False
    """Whether to remove the signature from valid messages."""
    on_failure: Literal["reject", "drop"] = "reject"
    """`reject` sends the message to `rejects` with the reason, `drop` withholds it; both are journalled."""


class VerifyStep(Step):
    """
    Lets messages through that have a valid signature of `sign`, or of any other software.

    A message is rejected, or withheld, if it has no signature, if the signature is invalid, has expired or has an
    unknown key, and if the message was altered. For an unknown key, the secret is read again first.
    """

    keeps_properties: ClassVar[bool] = True
    options: VerifyOptions = Field(alias="verify")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or removes."""
        return frozenset((self.options.signature.lower(),))

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        drops = self.options.on_failure == "drop"
        return keyed(task, "verify", self.options.key, Verify(self.options, task.clock).edit, drops=drops)


class Verify:
    """Lets messages with a valid signature through."""

    def __init__(self, options: VerifyOptions, clock: Clock) -> None:
        """Take the time from *clock*."""
        from shared.editors.protection.jws import verify_detached  # noqa: PLC0415 - only tasks with keys load the library

        self._verify = verify_detached
        self._required = options.properties or ()
        self._signature = options.signature
        self._removes = options.remove
        self._clock = clock

    def edit(self, message: Message, ring: "KeyRing") -> Message | Withheld:
        """Return *message*; raises MessageRejected unless its signature is valid."""
        signature = message.application_property(self._signature)
        if signature is None or not isinstance(signature.payload, str):
            raise MessageRejected("SignatureMissing", f"has no signature in property {self._signature}")
        header = self._verify(signature.payload, body_or_nothing(message), ring)
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
