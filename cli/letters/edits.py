"""What the options of a resend mean: the changes of each message, and what duplicate detection does with a copy."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from cli.dry_run.line import dry_task
from cli.tasks import single_task
from cli.topology.sites import open_client
from shared.ends.service_bus.administration import duplicate_window, translating
from shared.errors import ConfigError, Problem
from shared.protocols import BatchEditor, Editor
from shared.resend.edits import Edits
from shared.resend.places import Destination
from shared.resend.routing import Window, WindowOf, window_by
from shared.rules.errors import RuleSyntaxError
from shared.rules.rule import Action, parse_action, unknown_system_properties
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
    return Edits([action for action in actions if action is not None], editors, new_ids=new_ids)


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


def window_by_administration(configuration: Configuration) -> WindowOf:
    """Return a function that asks the administration API; it raises ConfigError if there is no answer."""

    async def window_of(destination: Destination) -> Window:
        connection = configuration.connections[destination.alias]

        def ask() -> timedelta | None:
            with translating(str(destination)), open_client(destination.alias, connection) as client:
                return duplicate_window(client, destination.entity)

        hint = "--new-ids gives the copies other ids; --same-ids sends them as they are"
        return await window_by(ask, destination, hint) if connection.end.has_dead_letters else None

    return window_of
