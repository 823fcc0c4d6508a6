"""What the options of a command mean: which messages it works on, and how a resend changes them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from cli.dry_run.line import dry_task
from cli.durations import duration_of
from cli.places import single_task
from shared.errors import ConfigError, Problem
from shared.protocols import BatchEditor, Editor
from shared.resend.edits import Edits
from shared.resend.selection import Selection
from shared.rules.errors import RuleSyntaxError
from shared.rules.rule import Action, SqlFilter, parse_action, parse_filter, unknown_system_properties
from shared.tasks.files import Configuration


def selection(
    *,
    where: str | None = None,
    reason: str | None = None,
    older_than: str | None = None,
    number: Sequence[int] | None = None,
    limit: int | None = None,
    session: str | None = None,
) -> Selection:
    """Return the selection that the options describe; raises ConfigError."""
    return Selection(
        None if where is None else filter_of(where),
        reason,
        None if older_than is None else duration_of(older_than, "--older-than"),
        None if not number else frozenset(number),
        limit,
        session,
        datetime.now(UTC),
    )


def filter_of(text: str) -> SqlFilter:
    """Return the compiled filter of `--where`; raises ConfigError."""
    return parsed(parse_filter, text, "--where")


def parsed[Parsed: (SqlFilter, Action)](parse: Callable[[str], Parsed], text: str, option: str) -> Parsed:
    """Return what *parse* makes of the *text* of an option; raises ConfigError."""
    try:
        found = parse(text)
    except RuleSyntaxError as error:
        raise ConfigError([Problem(option, str(error))]) from error
    unknown = unknown_system_properties(found)
    if unknown:
        hint = "a property of the application is written without sys."
        raise ConfigError([Problem(option, f"unknown broker property sys.{unknown[0]}", hint)])
    return found


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
    editors: list[Editor] = []
    try:
        named = [] if task is None else [single_task(task, configuration, "--editors")]
        for editor in (each for file in named for each in dry_task(file, configuration, settings).editors):
            if isinstance(editor, BatchEditor):
                text = f"its editor {editor.name} works on whole batches of the task"
                hint = "send the messages to the task's source instead, which runs all its editors"
                problems.append(Problem(f"--editors {task}", text, hint))
            else:
                editors.append(editor)
        if named and not editors and not problems:
            problems.append(Problem(f"--editors {task}", "the task has no editors"))
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(problems)
    return Edits(actions, editors, new_ids=new_ids)
