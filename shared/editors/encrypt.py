"""The encrypt editor: bodies and fields that only the holder of a key can read."""

from functools import cached_property
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import TaskFacts
from shared.editors.protection.key_names import SealingOptions
from shared.editors.protection.keys import KeyedStep, KeyRing
from shared.editors.protection.sealing import Sealer
from shared.message.message import Message


class EncryptOptions(SealingOptions):
    """What to encrypt, and with which key."""

    fields: FieldPaths | None = None
    """Paths, such as `$.card.number`, of the fields to encrypt in a JSON body; by default the whole body."""
    missing_fields: Literal["reject", "pass"] = "reject"
    """What happens to a body without one of the fields."""
    serialization: Literal["compact", "json"] = "compact"
    """JWE serialization of an encrypted body."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.fields is None and self.missing_fields != "reject":
            raise ValueError("has missing_fields without fields, expected both or neither")
        if self.fields is not None and self.serialization != "compact":
            raise ValueError("has fields with another serialization, expected compact")
        return self


class EncryptStep(KeyedStep):
    """
    Encrypts the body, or fields of a JSON body, as JSON Web Encryption (RFC 7516) with a named key.

    The content type of an encrypted body is application/jose or application/jose+json; the original one is inside. A
    body with encrypted fields stays JSON: each field becomes a string.
    """

    keeps_content_type: ClassVar[bool] = False
    options: EncryptOptions = Field(alias="encrypt")

    @cached_property
    def _sealer(self) -> Sealer:
        options = self.options
        fields = Fields(options.fields, optional=options.missing_fields == "pass") if options.fields else None
        return Sealer(options, fields, as_json=options.serialization == "json")

    def edit(self, message: Message, ring: KeyRing, _: TaskFacts) -> Message:
        """Return *message* encrypted."""
        return self._sealer.edit(message, ring)
