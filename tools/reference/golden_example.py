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
_LONGEST_FLOW = 10
"""Lines of what comes in and goes out; those of a longer case are only linked."""
_WIDTH = 116


def case_of(verb: str) -> Path:
    """Return the golden case of an editor."""
    return CASES / f"editor_{verb}.yaml"


def example_of(case: Path) -> Iterator[str]:
    """Yield the lines that show a case: the task's editors, its files and settings, what comes in and goes out."""
    text = case.read_text(encoding="utf-8")
    sentence = " ".join(line.removeprefix("#").strip() for line in text.split("\n") if line.startswith("#"))
    parts = _parts(text)
    yield from (sentence, "", "```yaml")
    yield from _editors(text)
    yield from ("```", "")
    for file, content in _files(yaml.safe_load(text).get("files", {})):
        yield from (f"`{file}`:", "", "```", *content, "```", "")
    settings = yaml.safe_load(text).get("settings", {})
    lines = [f"{name}={_setting(value)}" for name, value in settings.items() if not _is_key(value)]
    if lines:
        yield from ("App settings:", "", "```", *lines, "```", "")
    took, sent = (textwrap.dedent(parts.get(key, "")).strip("\n").split("\n") for key in ("steps", "sent"))
    took = list(_delivered(took))
    if len(took) + len(sent) <= _LONGEST_FLOW:
        yield from (
            "In:",
            "",
            "```yaml",
            *took,
            "```",
            "",
            "Out:",
            "",
            "```yaml",
            *(sent if any(sent) else ["{}"]),
            "```",
            "",
        )
    else:
        yield from (f"In and out: [`{case.name}`](../../{case.relative_to(ROOT)}).", "")


def _is_key(value: object) -> bool:
    """Return whether an app setting has keys, whose form is on docs/secrets.md."""
    return isinstance(value, dict) and "keys" in value


def _setting(value: object) -> str:
    return f"file:{value['file']}" if isinstance(value, dict) else str(value)


def _parts(text: str) -> dict[str, str]:
    """Return the text below each key of the case."""
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
    """Yield the text of `editors:` of each task, with the names of the tasks if there are several."""
    blocks = list(re.finditer(r"^( *)editors:.*\n(?:\1 +.*\n)*", text, re.MULTILINE))
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


def _delivered(lines: list[str]) -> Iterator[str]:
    """Yield the steps, without the name of the task if there is only one."""
    tasks = {line for line in lines if line.startswith("- task: ")}
    begins = False
    for line in lines:
        if len(tasks) == 1 and line in tasks:
            begins = True
            continue
        yield f"- {line.removeprefix('  ')}" if begins else line
        begins = False
