"""The re-encrypt editor: from one key to another in one step, without plain text between editors."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.key_names import KeyName, SealingOptions
from shared.editors.protection.keys import Keyed, KeyRing, KeyRings
from shared.editors.protection.sealing import Opener, Sealer
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether


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
        return _ReSealer(self.options, task)


class _ReSealer(Keyed):
    """Decrypts messages with the keys of one secret, and encrypts them with a key of another."""

    def __init__(self, options: ReEncryptOptions, task: TaskFacts) -> None:
        super().__init__("re-encrypt", KeyRings(options.from_.key, task, "re-encrypt.from.key"), self._reseal)
        self._new_rings = KeyRings(options.to.key, task, "re-encrypt.to.key")
        fields = Fields(options.fields, optional=False) if options.fields else None
        self._opener = Opener(fields, (), needs_path=options.from_.without_path == "reject")
        self._sealer = Sealer(options.to, fields)
        self._ring: KeyRing | None = None

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        self._ring = await self._new_rings.ring(timeout_seconds=timeout_seconds)
        return await super().edit_batch(messages, timeout_seconds=timeout_seconds)

    def _reseal(self, message: Message, ring: KeyRing) -> Message:
        assert self._ring is not None  # noqa: S101 - edit_batch has set it
        return self._sealer.edit(self._opener.edit(message, ring), self._ring)
