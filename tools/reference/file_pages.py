"""The pages of docs/reference: every key of every file, from its JSON schema, and the findings of `busway check`."""

import json
from collections.abc import Iterator
from typing import NamedTuple

from cli.commands.schema import text
from shared.review.checks import CHECKS, Check, Severity
from shared.tasks.steps import STEPS
from tools.reference.option_lists import OptionLists


class FilePage(NamedTuple):
    """A page about one file."""

    what: str
    """The argument of `busway schema`, and the name of the page."""
    file: str
    purpose: str
    guide: str
    """The pages that explain how to use it."""


PAGES = (
    FilePage(
        "task",
        "tasks/*.yaml",
        "One or more documents, each a replication task or a tap.",
        "[Patterns](../patterns/README.md) has a file for each topology, [editors](../editors/README.md) the steps.",
    ),
    FilePage(
        "connections",
        "connections.yaml",
        "The namespaces and brokers, each under an alias that tasks name.",
        "[Secrets and keys](../secrets.md), [other brokers](../amqp.md), [Kafka](../kafka.md), [storage queues]"
        "(../storage-queues.md), [Event Grid](../event-grid.md).",
    ),
    FilePage(
        "journal",
        "journal.yaml",
        "Where all tasks write what they took and sent. Without this file there is no journal.",
        "[The journal](../journal.md).",
    ),
    FilePage(
        "topology",
        "topology.yaml",
        "What entities have beyond what tasks need, and entities of applications, under the alias of their connection; "
        "for `busway plan` and `apply`. What is left out is chosen for a new entity, and kept in one that exists.",
        "[Creating the entities](../topology.md).",
    ),
    FilePage(
        "failover",
        "failover.yaml",
        "The sites that applications may use, and where the active one is published; for `busway failover`.",
        "[Failover](../failover.md).",
    ),
)
_EDITORS = {step.__name__: "[editor](../editors/README.md)" for step in STEPS.values()}


def file_pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each page in docs/reference and its text."""
    for page in PAGES:
        yield f"{page.what}.md", "\n".join(_page(page)).rstrip("\n") + "\n"


def _page(page: FilePage) -> Iterator[str]:
    schema = json.loads(text(page.what))
    definitions = schema.get("$defs", {})
    yield from (f"# {page.file}", "", "<!-- Generated: make reference -->", "")
    yield from (f"{page.purpose} {page.guide}", "")
    roots = schema.get("anyOf") or schema.get("oneOf") or [schema[key] for key in ("else", "then") if key in schema]
    described: set[str] = set()
    for root in roots or [schema]:
        name = root.get("$ref", "").rsplit("/", 1)[-1]
        model = definitions.get(name, root)
        lists = OptionLists(definitions, _EDITORS, described)
        if "properties" in model:
            yield from ([f"## {model['description'].rstrip('.')}", ""] if name else [])
            yield from lists.of_model(model, name)
        else:
            yield from lists.of_names(model)


def index() -> str:
    """Return the text of docs/reference/README.md."""
    rows = [f"- [`{page.file}`]({page.what}.md): {page.purpose}" for page in PAGES]
    return _INDEX + "\n".join(rows) + "\n"


_INDEX = """\
# Reference

<!-- Generated: make reference -->

Every key of every file in the configuration folder. [App settings](settings.md), [editors](../editors/README.md) and
the [findings of `busway check`](checks.md) have pages of their own.

A duration is written as 80ms, 5m, 2h, 7d or in ISO 8601. For completion in your text editor, a file begins with the
path of its schema: `# yaml-language-server: $schema=task.schema.json`.

"""


_PAGE = """\
# Findings of `busway check`

<!-- Generated: make reference -->

What does a finding mean? The finding itself says where it is and how to fix it. Those with a * need [the
entities](../checks.md) of the namespaces.

## Errors

Messages certainly loop, get lost or stay behind.

{errors}

## Warnings

They may be intended.

{warnings}
"""


def check_page() -> str:
    """Return the text of docs/reference/checks.md."""
    errors = [check for check in CHECKS if check.severity is Severity.ERROR]
    warnings = [check for check in CHECKS if check.severity is not Severity.ERROR]
    return _PAGE.format(errors="\n".join(map(_line, errors)), warnings="\n".join(map(_line, warnings)))


def _line(check: Check) -> str:
    return f"- `{check.name}`{'*' if check.needs_entities else ''}: {check.meaning}"
