"""The encrypt editor: what leaves is readable for those alone who have the key."""

from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames
from shared.editors.protection.key_names import KeyId, KeyName, check_key
from shared.message.message import Message
from shared.protocols import BatchEditor

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing

type Algorithm = Literal["A256KW", "dir", "RSA-OAEP-256", "ECDH-ES+A256KW"]
type ContentEncryption = Literal["A256GCM", "A128GCM", "A128CBC-HS256", "A256CBC-HS512"]


class SealingOptions(Strict):
    """With which key, and how, something is encrypted."""

    key: KeyName
    """Secret with the key: a JSON Web Key, or a set of them, of which the last is the newest and is taken."""
    kid: KeyId | None = None
    """Id of another key of the set to be taken."""
    alg: Algorithm | None = None
    """How the key is used: by its own `alg`, or its kind, unless given; `dir` encrypts with the key itself."""
    enc: ContentEncryption = "A256GCM"
    """How the content is encrypted."""
    bind: BoundNames | None = None
    """Properties, such as sys.MessageId, with which alone it can be decrypted; binds fields to their places, too."""


class EncryptOptions(SealingOptions):
    """What is encrypted, and with which key."""

    fields: FieldPaths | None = None
    """Paths, such as `$.card.number`, of what is encrypted in a JSON body, each by itself; else the body itself is."""
    missing_fields: Literal["reject", "pass"] = "reject"
    """What becomes of a body in which a path leads nowhere."""
    serialization: Literal["compact", "json"] = "compact"
    """How the encryption of a whole body is written."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.fields is None and self.missing_fields != "reject":
            raise ValueError("has missing_fields without fields, expected both or neither")
        if self.fields is not None and self.serialization != "compact":
            raise ValueError("has fields with another serialization, expected compact")
        return self


class EncryptStep(Step):
    """
    Encrypts the body, or fields of a JSON body, as JSON Web Encryption (RFC 7516) with a key by name.

    The content type of a body becomes application/jose, or application/jose+json, and the one before is kept inside. A
    body with encrypted fields stays JSON: a text takes the place of each. Without the key the batch stays where it is.
    """

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False

    options: EncryptOptions = Field(alias="encrypt")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor that does what the options say."""
        from shared.editors.protection.keys import Keyed, KeyRings  # noqa: PLC0415 - tasks without keys do not pay for the library

        check_key(task, "encrypt.key", self.options.key)
        return Keyed("encrypt", KeyRings(self.options.key, task.secrets), Encrypt(self.options).edit)


class Encrypt:
    """Encrypts a message with the newest key of a ring, or a named one."""

    def __init__(self, options: EncryptOptions) -> None:
        """Do what *options* say."""
        from shared.editors.protection import sealing  # noqa: PLC0415 - see above
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
        """Return *message* encrypted; raises MessageRejected, and TargetRefused for a key that is not fit."""
        key = self._key.of(ring)
        if self._fields:
            self._seal_fields(message, key, self._fields, self._bound)
        else:
            self._seal_body(message, key, self._bound, as_json=self._as_json)
        return message
