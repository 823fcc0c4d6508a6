"""The golden case of an editor as an example on its page."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

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
