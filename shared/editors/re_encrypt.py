"""The re-encrypt editor: from one key to another in one step, without plain text between editors."""

from typing import ClassVar, Literal

from pydantic import Field

from shared.editors.content.json_fields import FieldPaths, Fields
from shared.editors.options import Step, Strict, TaskFacts
from shared.editors.protection.key_names import KeyName, SealingOptions, check_key
from shared.protocols import BatchEditor


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
        from shared.editors.protection.sealing import Opener, ReSealer, Sealer  # noqa: PLC0415 - only tasks with keys load the library

        options = self.options
        check_key(task, "re-encrypt.from.key", options.from_.key)
        check_key(task, "re-encrypt.to.key", options.to.key)
        fields = Fields(options.fields, optional=False) if options.fields else None
        opener = Opener(fields, (), needs_path=options.from_.without_path == "reject")
        return ReSealer("re-encrypt", task, (options.from_.key, opener), (options.to.key, Sealer(options.to, fields)))
