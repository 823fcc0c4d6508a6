"""README and docs/: links resolve, commands and options exist, and the deployment names every required parameter."""

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("broker/docs/*.md")),
    ROOT / "clients/README.md",
    ROOT / "broker/README.md",
]
FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^(?:\s*)(?:\.venv/bin/)?(busway (?:[^\n\\]|\\\n)+)", re.MULTILINE)
INLINE_COMMAND = re.compile(r"`(?:\.venv/bin/)?(busway [^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache  # for the links of all pages
def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of *page*."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_has_fewer_than_120_lines() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) < 120


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def test_links_resolve() -> None:
    assert {page: broken for page in PAGES if (broken := broken_links(page))} == {}


def test_index_leads_to_every_page() -> None:
    folders = [folder for folder in ROOT.glob("docs/*/") if (folder / "README.md").exists()]
    lost = []
    for folder in (ROOT / "docs", *folders):
        links = {link.partition("#")[0] for link in LINK.findall(text_of(folder / "README.md"))}
        lost += [page for page in sorted(folder.glob("*.md")) if page.name not in {"README.md", *links}]
    assert lost == []


COMMANDS = get_command(app)


@cache  # pages print the same commands
def context_of(*names: str) -> Any:
    if not names:
        return COMMANDS.make_context("busway", ["--help"], resilient_parsing=True)
    parent = context_of(*names[:-1])
    return parent.command.commands[names[-1]].make_context(names[-1], [], parent, resilient_parsing=True)


def problem(command: str) -> str | None:
    """Return what is wrong with a printed busway command: an unknown subcommand or option."""
    words = shlex.split(command, comments=True)[1:]
    names: list[str] = []
    while isinstance(found := context_of(*names).command, TyperGroup) and words and not words[0].startswith("-"):
        names.append(words.pop(0))
        if names[-1] not in found.commands:
            return f"unknown command {names[-1]}"
    known = {option for param in found.params for option in (*param.opts, *param.secondary_opts)} | {"--help"}
    for word in words:
        if word in {"|", "&&", ";", ">"}:
            break
        if word.startswith("--") and word.partition("=")[0] not in known:
            return f"unknown option {word}"
    return None


def wrong_commands(page: Path) -> dict[str, str]:
    text = text_of(page)
    commands = [each for fence in FENCE.finditer(text) for each in COMMAND.findall(fence[0])]
    commands += INLINE_COMMAND.findall(FENCE.sub("", text))
    return {command: found for command in commands if "…" not in command and (found := problem(command))}


def test_commands_and_their_options_exist() -> None:
    assert {page: wrong for page in PAGES if (wrong := wrong_commands(page))} == {}


def test_unknown_commands_and_options_are_problems() -> None:
    assert problem("busway demo --messages 5") == "unknown option --messages"
    assert problem("busway failover swich east") == "unknown command swich"
    assert problem("busway failover switch east --role=send") is None


@pytest.mark.parametrize("file", ["README.md", "docs/azure.md", "infra/main.bicep"])
def test_the_deployment_has_every_required_parameter(file: str) -> None:
    required = re.findall(r"^param (\w+) \w+$", text_of(ROOT / "infra/main.bicep"), re.MULTILINE)
    given = re.findall(r"^param (\w+) = ", text_of(ROOT / "infra/main.bicepparam"), re.MULTILINE)
    assert set(required) <= set(given)
    assert "--parameters infra/main.bicepparam" in text_of(ROOT / file)


def test_the_architecture_names_existing_files() -> None:
    paths = re.findall(
        r"`((?:shared|functions|cli|jobs|host|broker|clients|tests|docs)/[\w/.]*)`", text_of(ROOT / "ARCHITECTURE.md")
    )
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_map_of_the_houses_has_every_folder() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()  # noqa: S607 - of the developer
    folders = {name.partition("/")[0] for name in listed if "/" in name and not name.startswith(".")}
    section = text_of(ROOT / "CONTRIBUTING.md").partition("## The houses")[2].partition("\n## ")[0]
    mapped = {
        name.partition("/")[0]
        for row in re.findall(r"^\| (.*?) \|", section, re.MULTILINE)
        for name in re.findall(r"`([\w/]+/)`", row)
    }
    assert folders - {"tools"} == mapped
