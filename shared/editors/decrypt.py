"""The decrypt editor: encrypted bodies and fields become readable."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames
from shared.editors.protection.key_names import KeyName, keyed
from shared.message.message import Message
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing


class DecryptOptions(Strict):
    """What to decrypt, and with which keys."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set; the message names its `kid`."""
    fields: FieldPaths | None = None
    """Paths, such as `$.card.number`, of the fields to decrypt in a JSON body; by default the whole body."""
    missing_fields: Literal["reject", "pass"] = "reject"
    """What happens to a body without one of the fields."""
    without_path: Literal["reject", "accept"] = "reject"
    """What happens to a field that does not say where in the body it was encrypted, as those of other software and of
    Busway 0.2.0 without `bind`. Such fields can be swapped; reject them again once the last was decrypted."""
    bind: BoundNames | None = None
    """Properties to which the encryption must be bound; bound properties are always compared with the message."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.fields is None and self.missing_fields != "reject":
            raise ValueError("has missing_fields without fields, expected both or neither")
        return self


class DecryptStep(Step):
    """
    Decrypts JSON Web Encryption (RFC 7516) from `encrypt` or any other software.

    The body gets its original content type. A message that no key of the secret can open is rejected. If a message
    names an unknown key, the secret is read again first.
    """

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False

    options: DecryptOptions = Field(alias="decrypt")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        return keyed(task, "decrypt", self.options.key, Decrypt(self.options).edit)


class Decrypt:
    """Decrypts a message with the key of a ring that it names."""

    def __init__(self, options: DecryptOptions) -> None:
        """Decrypt by *options*."""
        from shared.editors.protection import sealing  # noqa: PLC0415 - only tasks with keys load the library

        self._open_body, self._open_fields = sealing.open_body, sealing.open_fields
        self._bound = options.bind or ()
        self._needs_path = options.without_path == "reject"
        self._fields = options.fields and Fields(options.fields, optional=options.missing_fields == "pass")

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* decrypted; raises MessageRejected."""
        if self._fields:
            self._open_fields(message, ring, self._fields, self._bound, needs_path=self._needs_path)
        else:
            self._open_body(message, ring, self._bound)
        return message
