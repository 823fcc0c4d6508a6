"""Changes to messages before they are sent again: `--set`, `--remove`, and the editors of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cli.dead.letters import Letter
from cli.dead.places import Place, task_named
from cli.dry_run.line import NoOutput
from shared.amqp.values import string
from shared.config.assembly import assemble
from shared.config.files import Configuration
from shared.errors import ConfigError, MessageRejected, Problem
from shared.message.message import Message
from shared.message.metadata import deterministic_id
from shared.message.rule_properties import RuleProperties
from shared.protocols import BatchEditor, Editor, Withheld
from shared.rules.errors import RuleSyntaxError
from shared.rules.rule import Action, parse_action, unknown_system_properties

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


def edits_of(
    set_: Sequence[str],
    remove: Sequence[str],
    task: str | None,
    configuration: Configuration,
    settings: Mapping[str, str],
    *,
    new_ids: bool,
) -> Edits:
    """Return the changes that the options describe; raises ConfigError with every problem."""
    problems: list[Problem] = []
    actions = [
        _action(f"{verb} {text}", f"--{verb.lower()}", problems)
        for verb, texts in (("SET", set_), ("REMOVE", remove))
        for text in texts
    ]
    editors: Sequence[Editor] = ()
    try:
        editors = [] if task is None else _editors(task, configuration, settings)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Edits([each for each in actions if each is not None], editors, new_ids=new_ids)


def _action(text: str, option: str, problems: list[Problem]) -> Action | None:
    try:
        action = parse_action(text)
    except RuleSyntaxError as error:
        problems.append(Problem(option, str(error)))
        return None
    unknown = unknown_system_properties(action)
    if unknown:
        hint = "a property of the application is written without sys."
        problems.append(Problem(option, f"unknown broker property sys.{unknown[0]}", hint))
    return action


def _editors(name: str, configuration: Configuration, settings: Mapping[str, str]) -> list[Editor]:
    file = task_named(name, configuration)
    if file is None:
        expected = ", ".join(each.task for each in configuration.tasks)
        raise ConfigError([Problem(f"--editors {name}", "unknown task", f"expected one of {expected}")])
    outputs = {alias: NoOutput() for alias in configuration.connections}
    (task,) = assemble(replace(configuration, tasks=[file], taps=()), outputs, settings=settings, dry_run=True)
    found: list[Editor] = []
    for editor in task.editors:
        if isinstance(editor, BatchEditor):
            text = f"its editor {editor.name} works on whole batches of the task"
            hint = "send the messages to the task's source instead, which runs all its editors"
            raise ConfigError([Problem(f"--editors {name}", text, hint)])
        found.append(editor)
    if not found:
        raise ConfigError([Problem(f"--editors {name}", "the task has no editors")])
    return found


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
