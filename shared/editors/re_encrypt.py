"""The re-encrypt editor: from one key to another in one step, without plain text between editors."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from shared.editors.content.json_fields import FieldPaths
from shared.editors.decrypt import Decrypt, DecryptOptions
from shared.editors.encrypt import Encrypt, EncryptOptions, SealingOptions
from shared.editors.options import Stateless, Step, Strict, TaskFacts
from shared.editors.protection.key_names import KeyName, check_key
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether

if TYPE_CHECKING:
    from shared.editors.protection.keys import Keyed, KeyRing, KeyRings


class FromOptions(Strict):
    """The keys to decrypt with."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set; the message names its `kid`."""
    without_path: Literal["reject", "accept"] = "reject"
    """What happens to a field that does not say where in the body it was encrypted, as those of other software and of
    Busway 0.2.0 without `bind`. Such fields can be swapped; reject them again once the last was decrypted."""


class ReEncryptOptions(Strict):
    """The old keys and the new key."""

    from_: FromOptions = Field(alias="from")
    """The keys of the existing encryption."""
    to: SealingOptions
    """The key of the new encryption."""
    fields: FieldPaths | None = None
    """Paths, such as `$.card.number`, of the encrypted fields in a JSON body; by default the whole body."""


class ReEncryptStep(Step):
    """
    Decrypts the body, or fields of it, and encrypts them with another key: at a border, or after a key rotation.

    The properties bound to the old encryption are compared with the message; the new one is bound to those in `to`.
    """

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False

    options: ReEncryptOptions = Field(alias="re-encrypt")

    def editor(self, task: TaskFacts, /) -> BatchEditor:
        """Return the editor with these options."""
        from shared.editors.protection.keys import Keyed, KeyRings  # noqa: PLC0415 - only tasks with keys load the library

        options = self.options
        check_key(task, "re-encrypt.from.key", options.from_.key)
        check_key(task, "re-encrypt.to.key", options.to.key)
        fields = {"fields": options.fields} if options.fields else {}
        decrypt = Decrypt(DecryptOptions.model_validate({**options.from_.model_dump(), **fields}))
        encrypt = Encrypt(EncryptOptions.model_validate({**options.to.model_dump(), **fields}))
        editor = ReEncrypt(decrypt, encrypt, KeyRings(options.to.key, task))
        editor.keyed = Keyed(editor.name, KeyRings(options.from_.key, task), editor.edit)
        return editor


class ReEncrypt(Stateless):
    """Decrypts a message with the key that it names, and encrypts it with a key of another secret."""

    name = "re-encrypt"
    keyed: "Keyed"
    """Reads the keys to decrypt with, and calls `edit`."""

    def __init__(self, decrypt: Decrypt, encrypt: Encrypt, rings: "KeyRings") -> None:
        """Encrypt with keys from *rings*."""
        self._decrypt = decrypt
        self._encrypt = encrypt
        self._rings = rings
        self._ring: KeyRing | None = None

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        """Return each message edited or rejected; raises the error if the keys are unavailable."""
        self._ring = await self._rings.ring(timeout_seconds=timeout_seconds)
        return await self.keyed.edit_batch(messages, timeout_seconds=timeout_seconds)

    def edit(self, message: Message, ring: "KeyRing") -> Message:
        """Return *message* encrypted with the new key."""
        assert self._ring is not None  # noqa: S101 - edit_batch has set it
        return self._encrypt.edit(self._decrypt.edit(message, ring), self._ring)
