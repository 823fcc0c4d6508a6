"""Microsoft's Bicep compiler, and what it predicts that a deployment makes."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BESIDE = ROOT.parent / "shared/tools/bicep"
COMPILER = str(BESIDE) if BESIDE.exists() else shutil.which("bicep")
needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="there is no Bicep compiler beside the checkout (../shared/tools/bicep) or on the PATH"
)
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
_PLACE = ("--subscription-id", SUBSCRIPTION, "--resource-group", "rg", "--location", "westeurope")

type Resource = dict[str, Any]


def copy_templates(folder: Path) -> None:
    """Copy the templates of infra/ into *folder*."""
    for name in ("entities.bicep", "main.bicep"):
        shutil.copy(ROOT / "infra" / name, folder)
    shutil.copytree(ROOT / "infra/modules", folder / "modules")


def snapshot(parameters: Path, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return what the compiler predicts for a parameter file: `predictedResources` and `outputs`."""
    run("snapshot", parameters.name, "--mode", "overwrite", *_PLACE, folder=parameters.parent, environment=environment)
    found: dict[str, Any] = json.loads(parameters.with_suffix(".snapshot.json").read_text())
    return found


def run(*arguments: str, folder: Path, environment: Mapping[str, str] | None = None) -> str:
    """Run the compiler and return what it prints; fails the test if it finds a problem."""
    done = subprocess.run(  # noqa: S603 - Microsoft's compiler
        [str(COMPILER), *arguments],
        cwd=folder,
        # Without profiling its own code it starts sooner.
        env={**os.environ, "DOTNET_TieredPGO": "0", **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr + done.stdout
    return done.stdout


def compiled(folder: Path) -> Path:
    """Copy the templates of infra/ into *folder* and return main.bicep as the JSON that it is compiled to."""
    copy_templates(folder)
    run("build", "main.bicep", folder=folder)
    return folder / "main.json"


def scope_of(assignment: Resource) -> str:
    """Return what a role assignment is about: the part of its id between the last resource group and itself."""
    match = re.search(
        r"/resourceGroups/[^/]+/providers/([^']+?)(?:'|/providers/Microsoft.Authorization)", assignment["id"]
    )
    assert match is not None, assignment["id"]
    return match[1]


def role_of(assignment: Resource) -> str:
    """Return the id of the role that is assigned."""
    return str(assignment["properties"]["roleDefinitionId"]).rpartition("/")[2].rstrip("')]")
