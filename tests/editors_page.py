"""
docs/editors.md, made of what the editors say of themselves and of their golden cases.

`python -m tests.editors_page > docs/editors.md` after a change of either; tests/unit/editors/test_page.py compares.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from shared.config.steps import STEPS
from shared.editors.options import Step

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests/golden/cases"

INTRO = """\
# Editors

<!-- Made by `python -m tests.editors_page > docs/editors.md` of the editors' own words and of their golden cases. -->

An editor is a step between the receipt of a message and its way to a target. A task names its editors in the order in
which they work; each is given what the one before has left:

```yaml
editors:
  - validate: {schema: schemas/order.json}
  - filter: "country = 'DE'"
  - transform: {expression: "{id: id, total: sum(lines[].price)}"}
  - compress: {encoding: zstd}
```

- **Order.** Editors come before the stamps, the time to live, the routes and the loop guard, so that a route's `when`
  sees what they have made. A message may become several, which then go on one by one, or nothing.
- **Withheld.** What an editor keeps back on purpose (`filter`, `on_failure: drop`) counts as carried: the source
  completes it, and the journal has it as `filtered` with the reason.
- **Rejected.** A message that an editor cannot do its work on is at fault: it goes unchanged, with the reason in
  `repl-reject-*` properties, to the task's `rejects`, without one to the dead-letter queue of its source; the journal
  has it as `rejected`, with the stage `edited` and the reason. The reason names the editor, the path and what was
  expected, never what the message says.
- **Once per delivery.** Most editors look at one message and do no I/O. Those that need a key or a store ask once for
  all messages that were delivered together; where it does not answer, the delivery is held and asked again, and nothing
  is rejected. What an editor keeps is kept so that a redelivered message gives the same result.
- **Options** are checked when the app starts, and by `busway check`: an unknown key, a schema that does not parse, a
  rule that cannot be read is told with its file and path.
- **The same.** Ids, sessions, partition keys and what the service said of a message are not an editor's to change,
  but for those that say so: `partition`, and `split` and `batch`, whose messages get ids made of the old ones.

`busway try TASK --peek 10` shows what a task's editors would make of the messages that wait in its source
([Trying a task](operations.md#trying-a-task-without-sending)). [The contract](specs/editor.md) is what an editor
keeps to; one of your own is a function: [`python`](#python). Formats of bodies have [a page of their own](formats.md).

Every example is a golden case, run by `pytest tests/golden`. In it, each step is a delivery (`after` so many seconds,
of messages written out or `taken` from where an earlier step has sent them) with the outcomes that it must have; `keys`
and `file` of app settings are made for the run; `matches` stands for a text that is another one each time; and `repl-`
properties are the stamps of the line.
"""

# By the names of their types, where these say more than the schema.
_NAMED = {
    "FilterText": "rule",
    "ActionText": "action of a rule",
    "EditingAction": "action of a rule",
    "ExpressionText": "JMESPath expression",
    "MediaType": "media type",
}
_LONGEST_FILE = 40
_FEW = 3
_WIDTH = 116


def missing() -> list[str]:
    """Return what the page lacks: editors without a golden case."""
    return [f"tests/golden/cases/{case_of(verb).name}" for verb in STEPS if not case_of(verb).exists()]


def case_of(verb: str) -> Path:
    """Return the golden case of an editor."""
    return CASES / f"editor_{verb}.yaml"


def page() -> str:
    """Return the page."""
    rows = [f"| [`{verb}`](#{verb}) | {_cell(_first_sentence(_words(step)))} |" for verb, step in sorted(STEPS.items())]
    table = ["## All editors", "", "| editor | what it does |", "|---|---|", *rows, ""]
    sections = [line for verb, step in sorted(STEPS.items()) for line in _section(verb, step)]
    return "\n".join([INTRO, *table, *sections])


def _section(verb: str, step: type[Step]) -> Iterator[str]:
    yield from (f"## {verb}", "", _words(step), "")
    yield from _options(verb, step)
    if case_of(verb).exists():
        yield from _example(case_of(verb))


def _words(step: type[Step]) -> str:
    return textwrap.dedent(f"    {step.__doc__ or ''}").strip()


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]


# Options


def _options(verb: str, step: type[Step]) -> Iterator[str]:
    schema = step.model_json_schema(by_alias=True)
    defs = schema.get("$defs", {})
    option = schema["properties"][verb]
    models: dict[str, Mapping[str, Any]] = {}
    name, whole = _resolved(option, defs)
    if "properties" in whole:
        yield from _table(whole, defs, models)
    else:
        yield from ("| option | type | default | |", "|---|---|---|---|")
        yield f"| `{verb}` | {_type(option, defs, models)} | required | {_cell(option.get('description', ''))} |"
        yield ""
    told: set[str] = {name}
    while models.keys() - told:
        name = next(each for each in models if each not in told)
        told.add(name)
        yield from (f"**{_label(name, models[name])}**: {_words_of(models[name])}", "")
        if any("const" not in option for option in models[name]["properties"].values()):
            yield from _table(models[name], defs, models)


def _table(model: Mapping[str, Any], defs: Mapping[str, Any], models: dict[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| option | type | default | |", "|---|---|---|---|")
    required = model.get("required", ())
    for name, option in model["properties"].items():
        if "const" in option:
            continue
        default = "required" if name in required else _default(option.get("default"))
        yield f"| `{name}` | {_type(option, defs, models)} | {default} | {_cell(option.get('description', ''))} |"
    yield ""


def _label(name: str, model: Mapping[str, Any]) -> str:
    """Return what a mapping is called: by what tells it from others in its place, if anything does."""
    tags = [f"`{option}: {each['const']}`" for option, each in model["properties"].items() if "const" in each]
    return tags[0] if tags else name


def _words_of(model: Mapping[str, Any]) -> str:
    return str(model.get("description", "")).replace("\n", " ")


def _resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return what a schema refers to, and its name."""
    name = ""
    while "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        schema = defs[name]
    return name, schema


def _type(schema: Mapping[str, Any], defs: Mapping[str, Any], models: dict[str, Mapping[str, Any]]) -> str:
    first = schema.get("$ref", "").rsplit("/", 1)[-1]
    name, schema = _resolved(schema, defs)
    if first in _NAMED or name in _NAMED:
        return _NAMED.get(first) or _NAMED[name]
    for union in ("anyOf", "oneOf"):
        if union in schema:
            kinds = [_type(each, defs, models) for each in schema[union] if each.get("type") != "null"]
            return (" or " if len(kinds) <= _FEW else ", ").join(dict.fromkeys(kinds))
    if "enum" in schema or "const" in schema:
        return " or ".join(_code(each) for each in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "object" and "properties" in schema:
        models.setdefault(name, schema)
        label = _label(name, schema)
        return label if label.startswith("`") else f"mapping: {label}"
    if schema.get("type") == "object":
        return f"mapping of names to {_type(schema['additionalProperties'], defs, models)}"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'], defs, models)}"
    return _scalar(schema)


def _scalar(schema: Mapping[str, Any]) -> str:
    match schema.get("type"):
        case "integer" | "number" as kind:
            return ("whole number" if kind == "integer" else "number") + _bounds(schema)
        case "boolean":
            return "`true` or `false`"
        case "string":
            return "ISO 8601 duration" if schema.get("format") == "duration" else "text"
        case None:
            return "anything"
    raise ValueError(f"{schema}: a type that this page has no words for")


def _bounds(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None and most is None:
        return ""
    return f" up to {most:,}" if least is None else f" from {least:,}" + ("" if most is None else f" to {most:,}")


def _default(value: object) -> str:
    return "-" if value is None else _code(value)


def _code(value: object) -> str:
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# Examples


def _example(case: Path) -> Iterator[str]:
    text = case.read_text(encoding="utf-8")
    sentence = " ".join(line.removeprefix("#").strip() for line in text.split("\n") if line.startswith("#"))
    parts = _parts(text)
    yield from (sentence, "", "```yaml")
    yield from _editors(text)
    yield from ("```", "")
    for file, content in _files(yaml.safe_load(text).get("files", {})):
        yield from (f"`{file}`:", "", "```", *content, "```", "")
    for key, heading in (("settings", "App settings"), ("steps", "In"), ("sent", "Out"), ("journal", "Journal")):
        if key in parts:
            lines = textwrap.dedent(parts[key]).strip("\n").split("\n")
            yield from (f"{heading}:", "", "```yaml", *(_delivered(lines) if key == "steps" else lines), "```", "")


def _parts(text: str) -> dict[str, str]:
    """Return what stands below each key of the case, as it is written."""
    parts: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        key = re.match(r"([a-z]+):(.*)", line)
        if key is not None:
            lines = parts.setdefault(key[1], [key[2].strip()] if key[2].strip() else [])
        elif not line.startswith("#"):
            lines.append(line)
    return {key: "\n".join(lines) for key, lines in parts.items()}


def _editors(text: str) -> Iterator[str]:
    """Yield the `editors:` of the tasks as they are written, with the names of the tasks where there are several."""
    blocks = list(re.finditer(r"^( *)editors:.*\n(?:\1 +.*\n)*", text, re.MULTILINE))
    for index, block in enumerate(blocks):
        if index:
            yield "---"
        if len(blocks) > 1:
            *_, task = re.finditer(r"^ *(?:- )?task: (\S+)$", text[: block.start()], re.MULTILINE)
            yield f"task: {task[1]}"
        yield from textwrap.dedent(block[0]).rstrip("\n").split("\n")


def _files(documents: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of the configuration folder that can be shown: texts and JSON that are not too long."""
    for name, document in documents.items():
        if isinstance(document, bytes):
            continue
        text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
        if not isinstance(document, str) and len(text) > _WIDTH:
            text = json.dumps(document, ensure_ascii=False, indent=2)
        lines = text.strip("\n").split("\n")
        if len(lines) <= _LONGEST_FILE:
            yield name, lines


def _delivered(lines: list[str]) -> Iterator[str]:
    """Yield the steps, without the name of the task where there is one only."""
    tasks = {line for line in lines if line.startswith("- task: ")}
    begins = False
    for line in lines:
        if len(tasks) == 1 and line in tasks:
            begins = True
            continue
        yield f"- {line.removeprefix('  ')}" if begins else line
        begins = False


if __name__ == "__main__":
    print(page(), end="")  # noqa: T201 - this is what the module is run for
