"""Writes a new project."""

import re
import shutil
from importlib.metadata import version
from pathlib import Path

import typer

from busway import ROOT
from cli.commands.schema import FILES, text
from cli.project.app_folder import JOURNAL_TEXT, SCHEMA_LINE, VERSION_FILE
from shared.errors import ConfigError, Problem
from shared.tasks.files import JOURNAL

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
    (folder / "azure.yaml").write_text(
        (ROOT / "azure.yaml").read_text().replace("name: busway", f"name: {_azd_name(folder)}")
    )
    (folder / VERSION_FILE).write_text(version("busway") + "\n")
    (folder / ".gitignore").write_text((_TEMPLATE / "gitignore").read_text())
    workflows = folder / ".github" / "workflows"
    workflows.mkdir(parents=True)
    shutil.copy(_TEMPLATE / "deploy.yml", workflows)
    page = (_TEMPLATE / "README.md").read_text()
    page = page.replace("NAME\n", f"{folder.resolve().name}\n", 1).replace("BUSWAY_VERSION", version("busway"))
    (folder / "README.md").write_text(page)


def _azd_name(folder: Path) -> str:
    """Return the folder's name as azd takes it: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-") or "busway"
