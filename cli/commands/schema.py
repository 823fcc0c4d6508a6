"""`busway schema`: the JSON schemas of the files in the configuration folder, and of the status."""

import json
from typing import Annotated, Any, Literal

import typer


def schema(
    what: Annotated[
        Literal["task", "connections", "journal", "topology", "failover", "status"],
        typer.Argument(help="The file in the configuration folder, or the output of `busway status --json`."),
    ] = "task",
) -> None:
    """
    Print the JSON schema of a file in the configuration folder, or of the status.

    The configuration folder holds them for your text editor: a file that begins with a line such as
    `# yaml-language-server: $schema=../task.schema.json` is completed and checked as you type. After an upgrade, write
    each again: busway schema connections > config/connections.schema.json
    """
    print(text(what), end="")


FILES = ("task", "connections", "journal", "topology", "failover")


def text(what: str) -> str:
    """Return the schema of a file, or of the status."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_content(what)}
    return json.dumps(document, indent=2) + "\n"


def _content(what: str) -> dict[str, Any]:
    match what:
        case "status":
            import msgspec

            from shared.journal.trace_document import MessageTrace
            from shared.resend.model import DeadLetterReport, LetterDetail, LetterList, ResendOrder, ResendStep
            from shared.status.model import History, Status

            kinds = (Status, History, DeadLetterReport, LetterList, LetterDetail, MessageTrace, ResendOrder, ResendStep)
            schemas, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
            title = "The status of an app, and what else its dashboard reads and sends"
            return {"title": title, "anyOf": list(schemas), "$defs": components}
        case "task":
            from shared.tasks.journal_models import file_schema

            return file_schema()
        case "connections":
            from shared.tasks.files import connections_schema

            return connections_schema()
        case "journal":
            from shared.tasks.journal_models import JournalFile

            return JournalFile.model_json_schema()
        case "topology":
            from shared.tasks.topology import Topology

            return Topology.model_json_schema()
        case "failover":
            from shared.tasks.failover import FailoverFile

            return FailoverFile.model_json_schema()
    raise ValueError(f"{what}: there is no such schema")
