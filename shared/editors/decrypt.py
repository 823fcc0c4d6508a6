"""The decrypt editor: what was encrypted on the way in is readable from here on."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames
from shared.editors.protection.key_names import KeyName, check_key
from shared.message.message import Message
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing


class DecryptOptions(Strict):
    """What is decrypted, and with which keys."""

    key: KeyName
    """Secret with the keys: a JSON Web Key, or a set of them; the message names the one by its `kid`."""
    fields: FieldPaths | None = None
    """Paths, such as `$.card.number`, of what is decrypted in a JSON body; the body itself if not given."""
    missing_fields: Literal["reject", "pass"] = "reject"
    """What becomes of a body in which a path leads nowhere."""
    bind: BoundNames | None = None
    """Properties that it must be bound to; what it is bound to is compared with the message in any case."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.fields is None and self.missing_fields != "reject":
            raise ValueError("has missing_fields without fields, expected both or neither")
        return self


class DecryptStep(Step):
    """
    Decrypts what `encrypt`, or any other software, has encrypted as JSON Web Encryption (RFC 7516).

    The body gets back the content type that it had. One that no key of the secret opens is rejected; one that names an
    unknown key is, once the secret has been read anew. Without the keys the batch stays at its source.
    """

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False

    options: DecryptOptions = Field(alias="decrypt")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that does what the options say."""
        from shared.editors.protection.keys import Keyed, KeyRings  # noqa: PLC0415 - tasks without keys do not pay for the library

        check_key(task, "decrypt.key", self.options.key)
        return Keyed("decrypt", KeyRings(self.options.key, task.secrets), Decrypt(self.options).edit)


class Decrypt:
    """Decrypts a message with the key of a ring that it names."""

    def __init__(self, options: DecryptOptions) -> None:
        """Do what *options* say."""
        from shared.editors.protection import sealing  # noqa: PLC0415 - see above

        self._open_body, self._open_fields = sealing.open_body, sealing.open_fields
        self._bound = options.bind or ()
        self._fields = options.fields and Fields(options.fields, optional=options.missing_fields == "pass")

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* decrypted; raises MessageRejected."""
        if self._fields:
            self._open_fields(message, ring, self._fields, self._bound)
        else:
            self._open_body(message, ring, self._bound)
        return message
