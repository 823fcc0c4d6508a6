"""The verify editor: lets only messages with a valid signature through."""

from typing import Annotated, Literal

from pydantic import Field

from shared.clock import Clock
from shared.editors.content.body import body_or_nothing
from shared.editors.options import Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames, covers, digest, listed
from shared.editors.protection.jws import verify_detached
from shared.editors.protection.key_names import KeyName
from shared.editors.protection.keys import KeyedStep, KeyRing
from shared.editors.sign import BOUND, BOUND_DIGEST, SIGNATURE
from shared.errors import MessageRejected
from shared.message.message import Message


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


class VerifyStep(KeyedStep):
    """
    Lets messages through that have a valid signature of `sign`, or of any other software.

    A message is rejected, or withheld, if it has no signature, if the signature is invalid, has expired or has an
    unknown key, and if the message was altered. For an unknown key, the secret is read again first.
    """

    options: VerifyOptions = Field(alias="verify")

    def may_set(self) -> frozenset[str]:
        """Return the one application property that it sets or removes."""
        return frozenset((self.options.signature.lower(),))

    def edit(self, message: Message, ring: KeyRing, task: TaskFacts) -> Message:
        """Return *message*; raises MessageRejected unless its signature is valid."""
        options, required = self.options, self.options.properties or ()
        signature = message.application_property(options.signature)
        if signature is None or not isinstance(signature.payload, str):
            raise MessageRejected("SignatureMissing", f"has no signature in property {options.signature}")
        header = verify_detached(signature.payload, body_or_nothing(message), ring)
        _check_time(header.get("exp"), task.clock)
        names = listed(header.get(BOUND))
        if not covers(names, required):
            raise MessageRejected("NotSigned", f"the signature does not cover {', '.join(required)}")
        if header.get(BOUND, names) != names or (names and header.get(BOUND_DIGEST) != digest(names, message)):
            raise MessageRejected("SignatureInvalid", "the signature does not match the properties")
        if options.remove:
            message.set_properties({options.signature: None})
        return message


def _check_time(ends: object, clock: Clock) -> None:
    if ends is None:
        return
    if not isinstance(ends, int | float) or isinstance(ends, bool):
        raise MessageRejected("SignatureInvalid", "the signature has an invalid expiry time (exp)")
    if clock.now().timestamp() >= ends:
        raise MessageRejected("SignatureExpired", "the signature has expired (exp)")
