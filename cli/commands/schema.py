"""`busway schema`: the JSON schemas of task files and of the status."""

import json
from typing import Annotated, Literal

import typer


def schema(
    what: Annotated[
        Literal["tasks", "status"], typer.Argument(help="Task files, or the output of `busway status --json`.")
    ] = "tasks",
) -> None:
    """
    Print the JSON schema of task files, or of the status.

    config/task.schema.json holds it for your editor: a task file that begins with the line
    `# yaml-language-server: $schema=../task.schema.json` is completed and checked as you type. After a change to
    shared/tasks/models.py, run: busway schema > config/task.schema.json

    docs/status.schema.json holds the one of the status and of the other answers of the dashboard. After a change, run:
    busway schema status > docs/status.schema.json
    """
    print(text() if what == "tasks" else status_text(), end="")


def text() -> str:
    """Return the content of config/task.schema.json."""
    from shared.tasks.journal_models import file_schema

    return _text(file_schema())


def status_text() -> str:
    """Return the content of docs/status.schema.json."""
    import msgspec

    from shared.journal.trace_document import MessageTrace
    from shared.resend.model import DeadLetterReport, LetterDetail, LetterList, ResendOrder, ResendStep
    from shared.status.model import History, Status

    answers = (Status, History, DeadLetterReport, LetterList, LetterDetail, MessageTrace, ResendOrder, ResendStep)
    schemas, components = msgspec.json.schema_components(answers, ref_template="#/$defs/{name}")
    title = "The status of an app, and what else its dashboard reads and sends"
    return _text({"title": title, "anyOf": list(schemas), "$defs": components})


def _text(content: dict[str, object]) -> str:
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **content}
    return json.dumps(document, indent=2) + "\n"
