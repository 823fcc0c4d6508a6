"""The pages of docs/editors: one for each editor, from its docstring, options and golden case, and an index."""

import re
import textwrap
from collections.abc import Iterator

from shared.editors.options import Step
from shared.tasks.steps import STEPS
from tools.reference.golden_example import case_of, example_of
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
