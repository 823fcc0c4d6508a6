"""What the options of a resend mean: the changes of each message."""

from collections.abc import Mapping, Sequence

from cli.dry_run.line import dry_task
from cli.letters.selection import parsed
from cli.tasks import single_task
from shared.errors import ConfigError, Problem
from shared.protocols import BatchEditor, Editor
from shared.resend.edits import Edits
from shared.rules.rule import Action, parse_action
from shared.tasks.files import Configuration


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
    actions: list[Action] = []
    for verb, texts in (("SET", set_), ("REMOVE", remove)):
        for text in texts:
            try:
                actions.append(parsed(parse_action, f"{verb} {text}", f"--{verb.lower()}"))
            except ConfigError as error:
                problems += error.problems
    editors: Sequence[Editor] = ()
    try:
        editors = [] if task is None else _editors(task, configuration, settings)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Edits(actions, editors, new_ids=new_ids)


def _editors(name: str, configuration: Configuration, settings: Mapping[str, str]) -> list[Editor]:
    task = dry_task(single_task(name, configuration, "--editors"), configuration, settings)
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
