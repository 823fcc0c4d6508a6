"""The decrypt editor: encrypted bodies and fields become readable."""

from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames
from shared.editors.protection.key_names import KeyName
from shared.editors.protection.keys import KeyedStep, KeyRing
from shared.editors.protection.sealing import Opener
from shared.message.message import Message


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


class DecryptStep(KeyedStep):
    """
    Decrypts JSON Web Encryption (RFC 7516) from `encrypt` or any other software.

    The body gets its original content type. A message that no key of the secret can open is rejected. If a message
    names an unknown key, the secret is read again first.
    """

    keeps_content_type: ClassVar[bool] = False
    options: DecryptOptions = Field(alias="decrypt")

    @cached_property
    def _opener(self) -> Opener:
        options = self.options
        fields = Fields(options.fields, optional=options.missing_fields == "pass") if options.fields else None
        return Opener(fields, options.bind or (), needs_path=options.without_path == "reject")

    def edit(self, message: Message, ring: KeyRing, _: TaskFacts) -> Message:
        """Return *message* decrypted."""
        return self._opener.edit(message, ring)
