"""The pages of docs/editors: one for each editor, from its docstring, options and golden case, and an index."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from shared.editors.options import Step
from shared.tasks.steps import STEPS
from tools.reference.option_lists import OptionLists

GROUPS = {
    "Select": ("filter", "route", "validate", "deduplicate"),
    "Change": ("properties", "partition", "transform", "enrich", "reduce", "split", "batch", "python"),
    "Convert": ("transcode", "cloudevents", "compress", "decompress"),
    "Move large bodies": ("claim-check", "claim-restore"),
    "Protect": ("encrypt", "decrypt", "re-encrypt", "sign", "verify", "attest", "chain", "verify-chain"),
}
# Mappings that are the options of another editor.
_OF_OTHERS = {
    "FromOptions": "`key` and `without_path` of [decrypt](decrypt.md)",
    "SealingOptions": "`key`, `kid`, `alg`, `enc` and `bind` of [encrypt](encrypt.md)",
}
_GENERATED = "<!-- Generated: make reference -->"
_INDEX = """\
# Editors

<!-- Generated: make reference -->

An editor changes, checks or withholds messages on their way. A task lists its editors in the order in which they run:

```yaml
editors:
  - validate: {schema: schemas/order.json}
  - filter: "country = 'DE'"
  - transform: {expression: "{id: id, total: sum(lines[].price)}"}
  - compress: {encoding: zstd}
```

[`busway try TASK --peek 10`](../checks.md#trying-a-task-without-sending) shows their results for messages that wait in
the source. On the pages, the brackets after an option have its type or values, then `required` or the default.

"""
_RULES = """\
## What all of them do

- **Order.** Editors run before the stamps, the time to live, the routes and loop prevention.
- **Withheld.** A message that an editor withholds on purpose (`filter`, `on_failure: drop`) is completed at the source
  and journalled as `filtered` with the reason.
- **Rejected.** A message that an editor cannot process goes unchanged to `rejects`, [with the
  reason](../dead-letters.md#why-was-it-rejected), which never quotes the message.
- **Keys and stores.** While a key or a store is unavailable, the messages stay at the source and none is rejected.
  `key: NAME` names a [secret](../secrets.md#keys-of-editors), `setting: NAME` an [app
  setting](../reference/settings.md#connections-journal-and-stores) of a storage account.
- **Never changed.** Ids, sessions, partition keys and arrival times. Exceptions: `partition` adds a partition key, and
  `split` and `batch` compute new ids from the old ones.

See also [body formats](../formats.md) and [the contract of editors](../contribute/editor.md). The examples on the pages
are tests: `tests/golden/cases/editor_VERB.yaml` has what comes in and goes out.
"""


def editor_pages() -> Iterator[tuple[str, str]]:
    """Yield the name of each page in docs/editors and its text."""
    yield "README.md", _INDEX + "\n".join(_groups()) + "\n" + _RULES
    for verb, step in STEPS.items():
        yield f"{verb}.md", "\n".join(_page(verb, step)).rstrip("\n") + "\n"


def _groups() -> Iterator[str]:
    for group, verbs in GROUPS.items():
        yield from (f"## {group}", "")
        yield from (f"- [`{verb}`]({verb}.md): {_first_sentence(_words(STEPS[verb]))}" for verb in verbs)
        yield ""


def _page(verb: str, step: type[Step]) -> Iterator[str]:
    yield from (f"# {verb}", "", _GENERATED, "", _words(step), "")
    schema = step.model_json_schema(by_alias=True)
    yield from OptionLists(schema.get("$defs", {}), _OF_OTHERS).of_option(verb, schema["properties"][verb])
    yield from ("## Example", "")
    yield from example_of(case_of(verb), verb)


def _words(step: type[Step]) -> str:
    return textwrap.dedent(f"    {step.__doc__ or ''}").strip()


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", text.replace("\n", " "), maxsplit=1)[0]


ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests/golden/cases"
_LONGEST_FILE = 16
_WIDTH = 116


def case_of(verb: str) -> Path:
    """Return the golden case of an editor."""
    return CASES / f"editor_{verb}.yaml"


def example_of(case: Path, verb: str) -> Iterator[str]:
    """Yield the lines that show the case of an editor: its task, its files and settings."""
    text = case.read_text(encoding="utf-8")
    sentence = " ".join(line.removeprefix("#").strip() for line in text.split("\n") if line.startswith("#"))
    yield from (sentence, "", "```yaml")
    yield from _editors(text, verb)
    yield from ("```", "")
    for file, content in _files(yaml.safe_load(text).get("files", {})):
        yield from (f"`{file}`:", "", "```", *content, "```", "")
    settings = yaml.safe_load(text).get("settings", {})
    lines = [f"{name}={_setting(value)}" for name, value in settings.items() if not _is_key(value)]
    if lines:
        yield from ("App settings:", "", "```", *lines, "```", "")


def _is_key(value: object) -> bool:
    """Return whether an app setting has keys, whose form is on docs/secrets.md."""
    return isinstance(value, dict) and "keys" in value


def _setting(value: object) -> str:
    return f"file:{value['file']}" if isinstance(value, dict) else str(value)


def _editors(text: str, verb: str) -> Iterator[str]:
    """Yield `editors:` of each task that has the editor, with the names of the tasks if there are several."""
    blocks = list(re.finditer(r"^( *)editors:.*\n(?:\1 +.*\n)*", text, re.MULTILINE))
    blocks = [block for block in blocks if re.search(rf"\b{verb}:", block[0])] or blocks
    for index, block in enumerate(blocks):
        if index:
            yield "---"
        if len(blocks) > 1:
            *_, task = re.finditer(r"^ *(?:- )?task: (\S+)$", text[: block.start()], re.MULTILINE)
            yield f"task: {task[1]}"
        yield from textwrap.dedent(block[0]).rstrip("\n").split("\n")


def _files(documents: Mapping[str, object]) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of the configuration folder that are text or JSON, and not too long."""
    for name, document in documents.items():
        if isinstance(document, bytes):
            continue
        text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
        if not isinstance(document, str) and len(text) > _WIDTH:
            text = json.dumps(document, ensure_ascii=False, indent=2)
        lines = text.strip("\n").split("\n")
        if len(lines) <= _LONGEST_FILE:
            yield name, lines
