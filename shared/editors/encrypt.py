"""The encrypt editor: bodies and fields that only the holder of a key can read."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames
from shared.editors.protection.key_names import KeyId, KeyName, keyed
from shared.message.message import Message
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing

type Algorithm = Literal["A256KW", "dir", "RSA-OAEP-256", "ECDH-ES+A256KW"]
type ContentEncryption = Literal["A256GCM", "A128GCM", "A128CBC-HS256", "A256CBC-HS512"]


class SealingOptions(Strict):
    """The key and the algorithms of an encryption."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""
    alg: Algorithm | None = None
    """Algorithm of the key; by default its own `alg`, or that of its kind; `dir` encrypts with the key itself."""
    enc: ContentEncryption = "A256GCM"
    """Algorithm that encrypts the content."""
    bind: BoundNames | None = None
    """Properties, such as sys.MessageId, that must be the same at decryption."""


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


class EncryptStep(Step):
    """
    Encrypts the body, or fields of a JSON body, as JSON Web Encryption (RFC 7516) with a named key.

    The content type of an encrypted body is application/jose or application/jose+json; the original one is inside. A
    body with encrypted fields stays JSON: each field becomes a string.
    """

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False

    options: EncryptOptions = Field(alias="encrypt")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        return keyed(task, "encrypt", self.options.key, Encrypt(self.options).edit)


class Encrypt:
    """Encrypts a message with the newest key of a ring, or a named one."""

    def __init__(self, options: EncryptOptions) -> None:
        """Encrypt by *options*."""
        from shared.editors.protection import sealing  # noqa: PLC0415 - only tasks with keys load the library
        from shared.editors.protection.jwe import SealingKey  # noqa: PLC0415 - see above
        from shared.editors.protection.keys import PerRing  # noqa: PLC0415 - see above

        self._seal_body, self._seal_fields = sealing.seal_body, sealing.seal_fields
        self._key = PerRing(
            lambda ring: SealingKey(ring.secret, ring.chosen(options.kid), options.alg, options.enc),
        )
        self._bound = options.bind or ()
        self._as_json = options.serialization == "json"
        self._fields = options.fields and Fields(options.fields, optional=options.missing_fields == "pass")

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* encrypted; raises MessageRejected, and TargetRefused for an unsuitable key."""
        key = self._key.of(ring)
        if self._fields:
            self._seal_fields(message, key, self._fields, self._bound)
        else:
            self._seal_body(message, key, self._bound, as_json=self._as_json)
        return message
