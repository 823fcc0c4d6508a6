"""Changes to messages before they are sent again."""

from collections.abc import Sequence

from shared.amqp.values import string
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.message.rule_properties import RuleProperties
from shared.protocols import Editor, Withheld
from shared.resend.letters import Letter
from shared.resend.places import Place
from shared.rules.rule import Action

RESENT_FROM = "repl-resent-from"
"""The property that identifies the message of which this one is a copy: site, entity, sequence number, time."""


class Edits:
    """What is changed in every message that is sent again."""

    def __init__(
        self, actions: Sequence[Action] = (), editors: Sequence[Editor] = (), *, new_ids: bool = False
    ) -> None:
        """Apply *editors* and then *actions*; with *new_ids* each message gets an id of its own."""
        self._actions = actions
        self._editors = editors
        self._new_ids = new_ids

    def resent(self, letter: Letter, place: Place) -> Message:
        """Return the message to send for a letter of *place*; raises MessageRejected."""
        message = letter.unwrapped()
        for editor in self._editors:
            message = _edited(editor, message)
        properties = RuleProperties(message)
        for action in self._actions:
            action.apply(properties)
        if self._new_ids:
            identity = deterministic_id(message.arrival)
            message.message_id = None if identity is None else string(identity)
        message.set_properties({RESENT_FROM: string(stamp_of(place, letter.key or ""))})
        return message


def stamp_of(place: Place, key: str) -> str:
    """Return the value of RESENT_FROM for the message of *place* with *key*; names of entities have no case."""
    return f"{place.site}/{place.entity.lower()}/{key}"


def resent_key(copy: Letter, place: Place) -> str | None:
    """Return the key of the message of *place* that *copy* is a copy of, or None."""
    stamp = None if copy.message is None else copy.message.application_property(RESENT_FROM)
    prefix = stamp_of(place, "")
    if stamp is None or not isinstance(stamp.payload, str) or not stamp.payload.startswith(prefix):
        return None
    return stamp.payload.removeprefix(prefix)


def _edited(editor: Editor, message: Message) -> Message:
    try:
        result = editor.edit(message)
    except MessageRejected:
        raise
    except Exception as error:  # an editor of the user's own may raise anything
        text = f"the editor {editor.name} failed with {type(error).__name__}"
        raise MessageRejected("EditorFailed", text) from error
    if isinstance(result, Withheld):
        raise MessageRejected("Withheld", f"the editor {editor.name} withholds it: {result.reason}")
    if len(result) != 1:
        made = f"{len(result)} messages" if result else "nothing"
        raise MessageRejected("Split", f"the editor {editor.name} makes {made} of it, expected one message")
    return result[0]
