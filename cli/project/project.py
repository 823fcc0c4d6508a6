"""Writes projects that hold only a configuration, and what they deploy: the app, the templates, and the nightly job."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import typer

from busway import ROOT
from cli.check_folder import check_folder
from cli.commands.schema import FILES, text
from cli.topology.deployment import DEFAULT_JOURNAL, deployment_of
from cli.topology.plan import load_needs
from shared.errors import ConfigError, Problem
from shared.tasks.files import JOURNAL

VERSION_FILE = ".busway-version"
# In the app, where `shared.assembly.status` reads it.
_APP_VERSION_FILE = "busway-version"
SCHEMA_LINE = "# yaml-language-server: $schema="
JOURNAL_TEXT = f"""\
{SCHEMA_LINE}journal.schema.json
# The storage account of the app setting JOURNAL, which `busway start` and the templates set, has the journal.
blob: {{setting: JOURNAL, container: journal}}
"""
TASKS_FILE = "tasks.json"
_CODE = ("functions", "shared")
_FILES = ("function_app.py", "requirements.txt")
_HOST_FILE = "host.json"
_IGNORED = shutil.ignore_patterns("__pycache__")
# Files with a dot are those of tools, and may have secrets.
_NOT_DEPLOYED = shutil.ignore_patterns("entities", "examples", "__pycache__", ".*")


def write_package(config: Path, out: Path) -> None:
    """Write the app to *out*, and beside it the templates and the context of the nightly job's image."""
    project, (infra, nightly) = config.resolve().parent, (out.parent / name for name in ("infra", "nightly"))
    # What an earlier run wrote is replaced; anything else is not ours to delete.
    places = {out: "function_app.py", infra: TASKS_FILE, nightly: "jobs"}
    problems: list[Problem | None] = []
    wanted = (
        (project / VERSION_FILE).read_text(errors="replace").strip() if (project / VERSION_FILE).is_file() else None
    )
    if wanted not in (None, version("busway")):
        hint = f"use the checkout of {wanted}, or change the file to upgrade; CHANGELOG.md names what changes"
        found = f"is {wanted!r}, but this is Busway {version('busway')}"
        problems.append(Problem(str(project / VERSION_FILE), found, hint))
    problems += [_place_problem(place, marker, config) for place, marker in places.items()]
    problems += _foreign_links(config, project / _HOST_FILE)
    if any(problems):
        raise ConfigError([problem for problem in problems if problem is not None])
    if not check_folder(config, [], strict=False, deploys=True):
        raise typer.Exit(1)
    try:
        configuration, needs = load_needs(config)
        if configuration.journal is None:
            configuration = replace(configuration, journal=DEFAULT_JOURNAL)
        deployment = deployment_of(configuration, needs)
        _replaced(out, lambda folder: _write_app(config, project, folder))
        _replaced(infra, lambda folder: _write_templates(deployment, folder))
        _replaced(nightly, lambda folder: shutil.copytree(ROOT / "jobs", folder / "jobs", ignore=_IGNORED))
    except OSError as error:
        raise ConfigError([Problem(str(error.filename or out), f"cannot be written: {error.strerror}")]) from error
    typer.echo(f"{out}: Busway {version('busway')} with {config}")
    typer.echo(f"{infra}: the templates, and what the tasks need of them")
    typer.echo(f"{nightly}: the image of the nightly reconciliation")
    if not (config / JOURNAL).exists():
        typer.echo(f"{config / JOURNAL} is missing: the app has a journal in blobs, with the app setting JOURNAL")


def _replaced(place: Path, write: Callable[[Path], object]) -> None:
    """
    Let *write* fill a new folder, and put it in the place of what an earlier run wrote.

    What is the same stays: azd packs the app while its hook runs this again, and must not find it half gone.
    """
    made = place.with_name(f"{place.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    write(made)
    if place.exists() and _contents(made) == _contents(place):
        shutil.rmtree(made)
        return
    if place.exists():
        shutil.rmtree(place)
    made.rename(place)


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _write_app(config: Path, project: Path, folder: Path) -> None:
    for name in _FILES:
        shutil.copy(ROOT / name, folder)
    for name in _CODE:
        shutil.copytree(ROOT / name, folder / name, ignore=_IGNORED)
    (folder / _APP_VERSION_FILE).write_text(f"{version('busway')}\n")
    own_host = project / _HOST_FILE
    shutil.copy(own_host if own_host.is_file() else ROOT / _HOST_FILE, folder)
    # Config.json files are for this machine, and examples are no part of an app.
    shutil.copytree(config, folder / "config", ignore=_NOT_DEPLOYED)
    if not (folder / "config" / JOURNAL).exists():
        (folder / "config" / JOURNAL).write_text(JOURNAL_TEXT)


def _write_templates(deployment: dict[str, object], folder: Path) -> None:
    for name in ("main.bicep", "entities.bicep"):
        shutil.copy(ROOT / "infra" / name, folder)
    shutil.copytree(ROOT / "infra/modules", folder / "modules")
    (folder / TASKS_FILE).write_text(json.dumps(deployment, indent=2) + "\n")


def _foreign_links(config: Path, *files: Path) -> list[Problem]:
    """Return a problem for each link that would take something from elsewhere into the app."""
    hint = "put a copy in its place if it is to be deployed"
    inside, links = config.resolve(), [path for path in (*config.rglob("*"), *files) if path.is_symlink()]
    return [
        Problem(str(link), f"is a link to {link.resolve()}, outside of the configuration", hint)
        for link in links
        if not link.resolve().is_relative_to(inside)
    ]


def _place_problem(place: Path, marker: str, config: Path) -> Problem | None:
    is_foreign = place.exists() and not (place / marker).exists() and (not place.is_dir() or any(place.iterdir()))
    reasons = {
        "contains the configuration": config.resolve().is_relative_to(place.resolve()),
        "exists and was not written by busway package": is_foreign,
        "contains Busway itself": ROOT.is_relative_to(place.resolve()),
    }
    found = next((reason for reason, holds in reasons.items() if holds), None)
    return None if found is None else Problem(f"--out: {place}", found, "name a folder that may be replaced")


_TEMPLATE = Path(__file__).parent / "template"
_EXAMPLES = ROOT / "config" / "examples"


def write_project(folder: Path, example: str) -> None:
    """Write a project with the configuration of an example into an empty *folder*."""
    examples = sorted(path.name for path in _EXAMPLES.iterdir() if (path / "connections.yaml").is_file())
    if example not in examples:
        expected = f"expected one of {', '.join(examples)}"
        raise ConfigError([Problem(f"--example {example}", "unknown example", expected)])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError([Problem(str(folder), "is not empty", "name a new folder")])
        _write(folder, example)
    except OSError as error:
        raise ConfigError([Problem(str(folder), f"cannot be written: {error.strerror}")]) from error
    typer.echo(f"{folder}: written for Busway {version('busway')}, with the example {example}")
    typer.echo("next, in that folder: busway check, then busway start --port 0")


def _write(folder: Path, example: str) -> None:
    shutil.copytree(_EXAMPLES / example, folder / "config")
    for path in (folder / "config").rglob("*.yaml"):
        # An example is two folders below the schemas, a project's configuration is beside them.
        path.write_text(path.read_text().replace(f"{SCHEMA_LINE}../../", SCHEMA_LINE, 1))
    for what in FILES:
        (folder / "config" / f"{what}.schema.json").write_text(text(what))
    if not (folder / "config" / JOURNAL).exists():
        (folder / "config" / JOURNAL).write_text(JOURNAL_TEXT)
    shutil.copy(ROOT / "host.json", folder)
    (folder / "infra").mkdir()
    shutil.copy(ROOT / "infra/main.bicepparam", folder / "infra")
    # As azd takes it: small letters, digits and hyphens.
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "busway"
    (folder / "azure.yaml").write_text((ROOT / "azure.yaml").read_text().replace("name: busway", f"name: {name}"))
    (folder / VERSION_FILE).write_text(version("busway") + "\n")
    (folder / ".gitignore").write_text((_TEMPLATE / "gitignore").read_text())
    workflows = folder / ".github" / "workflows"
    workflows.mkdir(parents=True)
    shutil.copy(_TEMPLATE / "deploy.yml", workflows)
    page = (_TEMPLATE / "README.md").read_text()
    page = page.replace("NAME\n", f"{folder.resolve().name}\n", 1).replace("BUSWAY_VERSION", version("busway"))
    (folder / "README.md").write_text(page)
