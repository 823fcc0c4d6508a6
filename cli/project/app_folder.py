"""Writes the deployable app of a project: the code of this Busway, the configuration of the project."""

import shutil
from importlib.metadata import version
from pathlib import Path

import typer

from cli.check_folder import check_folder
from cli.output import fail
from cli.stack import ROOT
from shared.errors import Problem

VERSION_FILE = ".busway-version"
_CODE = ("functions", "shared")
_FILES = ("function_app.py", "requirements.txt")
_HOST_FILE = "host.json"
# What an earlier run wrote is replaced; anything else is not ours to delete.
_MARKER = "function_app.py"


def write_app(config: Path, out: Path) -> None:
    """Write the app to *out*; a problem ends the command."""
    project = config.resolve().parent
    problem = _version_problem(project / VERSION_FILE) or _place_problem(out, config)
    if problem is not None:
        fail([problem])
    if not check_folder(config, [], strict=False):
        raise typer.Exit(1)
    try:
        _write(config, project, out)
    except OSError as error:
        fail([Problem(str(out), f"cannot be written: {error.strerror}")])
    typer.echo(f"{out}: Busway {version('busway')} with {config}")


def _write(config: Path, project: Path, out: Path) -> None:
    made = out.with_name(f"{out.name}.new")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for name in _FILES:
        shutil.copy(ROOT / name, made)
    for name in _CODE:
        shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
    own_host = project / _HOST_FILE
    shutil.copy(own_host if own_host.is_file() else ROOT / _HOST_FILE, made)
    # Config.json files are for this machine, and examples are no part of an app.
    shutil.copytree(config, made / "config", ignore=shutil.ignore_patterns("entities", "examples", "__pycache__"))
    if out.exists():
        shutil.rmtree(out)
    made.rename(out)


def _version_problem(file: Path) -> Problem | None:
    """Return the problem if the project is written for another version; a folder without the file has none."""
    if not file.is_file():
        return None
    wanted = file.read_text(errors="replace").strip()
    if wanted == version("busway"):
        return None
    hint = f"use the checkout of {wanted}, or change the file to upgrade; CHANGELOG.md names what changes"
    return Problem(str(file), f"is {wanted!r}, but this is Busway {version('busway')}", hint)


def _place_problem(out: Path, config: Path) -> Problem | None:
    if config.resolve().is_relative_to(out.resolve()):
        return Problem(f"--out {out}", "contains the configuration", "name a folder that may be replaced")
    if out.exists() and not (out / _MARKER).is_file() and (not out.is_dir() or any(out.iterdir())):
        return Problem(f"--out {out}", "exists and is not an app", "name a folder that may be replaced")
    if out.resolve() == ROOT or ROOT.is_relative_to(out.resolve()):
        return Problem(f"--out {out}", "contains Busway itself", "name a folder that may be replaced")
    return None
