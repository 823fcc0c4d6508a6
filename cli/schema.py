"""`busway schema`: the JSON schema of task files."""

import json


def schema() -> None:
    """
    Print the JSON schema of task files.

    config/task.schema.json holds it for your editor: a task file that begins with the line
    `# yaml-language-server: $schema=../task.schema.json` is completed and checked as you type. After a change to
    shared/config/models.py, run: busway schema > config/task.schema.json
    """
    print(text(), end="")


def text() -> str:
    """Return the content of config/task.schema.json."""
    from shared.config.journal_models import file_schema

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **file_schema()}
    return json.dumps(document, indent=2) + "\n"
