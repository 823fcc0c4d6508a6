"""`busway schema`: the JSON schema of task files."""

import json

from shared.config.journals import file_schema


def schema() -> None:
    """
    Print the JSON schema of task files.

    It stands in config/task.schema.json, where editors find it: with the line
    `# yaml-language-server: $schema=../task.schema.json` at its top, a task file is completed and checked as you type.
    After a change of shared/config/models.py: `busway schema > config/task.schema.json`
    """
    print(text(), end="")


def text() -> str:
    """Return the schema as it stands in the file."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **file_schema()}
    return json.dumps(document, indent=2) + "\n"
