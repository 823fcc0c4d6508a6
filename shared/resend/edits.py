"""Changes to messages before they are sent again."""

from collections.abc import Sequence

from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.protocols import Editor, Withheld
from shared.resend.ledger import Ledger
from shared.resend.letters import Letter
from shared.resend.places import Place
from shared.rules.rule import Action

RESENT_FROM = "repl-resent-from"
"""The property that identifies the message of which this one is a copy: site, entity, sequence number, time; signed."""


class Edits:
    """What is changed in every message that is sent again."""

    def __init__(
        self, actions: Sequence[Action] = (), editors: Sequence[Editor] = (), *, new_ids: bool = False
    ) -> None:
        """Apply *editors* and then *actions*; with *new_ids* each message gets an id of its own."""
        self._actions = actions
        self._editors = editors
        self._new_ids = new_ids

    def resent(self, letter: Letter, place: Place, ledger: Ledger) -> Message:
        """Return the message to send for a letter of *place*, signed by *ledger*; raises MessageRejected."""
        message = letter.unwrapped()
        for editor in self._editors:
            message = _edited(editor, message)
        properties = RuleProperties(message)
        for action in self._actions:
            action.apply(properties)
        if self._new_ids:
            # One that could be foreseen could be sent to the target before, which would drop the copy as a duplicate.
            message.message_id = string(ledger.proof(f"id of {_identity(place, letter.key or '')}"))
        message.set_properties({RESENT_FROM: stamp_of(place, letter.key or "", ledger)})
        return message


def stamp_of(place: Place, key: str, ledger: Ledger) -> Value:
    """
    Return the value of RESENT_FROM for the message of *place* with *key*.

    A producer can write one too, but not with the proof of *ledger*.
    """
    return string(ledger.signed(_identity(place, key)))


def resent_key(copy: Letter, place: Place, ledger: Ledger) -> str | None:
    """Return the key of the message of *place* that a run with *ledger* has sent *copy* for, or None."""
    stamp = copy.text(RESENT_FROM)
    prefix = _identity(place, "")
    identity = ledger.text_of(stamp) if stamp is not None and stamp.startswith(prefix) else None
    return None if identity is None else identity.removeprefix(prefix)


def _identity(place: Place, key: str) -> str:
    """Return what identifies the message of *place* with *key*; names of entities have no case."""
    return f"{place.site}/{place.entity.lower()}/{key}"


def _edited(editor: Editor, message: Message) -> Message:
    try:
        result = editor.edit(message)
    except MessageRejected as error:
        raise error.by(editor.name) from error
    except Exception as error:  # an editor of the user's own may raise anything
        text = f"the editor {editor.name} failed with {type(error).__name__}"
        raise MessageRejected("EditorFailed", text) from error
    if isinstance(result, Withheld):
        raise MessageRejected("Withheld", f"the editor {editor.name} withholds it: {result.reason}")
    if len(result) != 1:
        made = f"{len(result)} messages" if result else "nothing"
        raise MessageRejected("Split", f"the editor {editor.name} makes {made} of it, expected one message")
    return result[0]
