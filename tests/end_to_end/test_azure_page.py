"""docs/azure.md: the commands that can run here run, and the compiler accepts what they write."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import yaml

from tests.bicep import ROOT, needs_compiler, snapshot
from tests.end_to_end.shell import Shell

PAGE = (ROOT / "docs/azure.md").read_text(encoding="utf-8")


def run_the_page(folder: Path) -> Path:
    """Run the first step of the tutorial in *folder*, and return the project."""
    found = re.search(r"<!-- run -->\n```sh\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    done = Shell(folder).run(found[1])
    assert done.returncode == 0, done.stderr
    return folder / "my-replicator"


@needs_compiler
def test_the_first_step_writes_what_the_compiler_deploys(tmp_path: Path) -> None:
    project = run_the_page(tmp_path)
    predicted = snapshot(project / "infra/main.bicepparam", {"AZURE_PRINCIPAL_ID": "me", "RECONCILE_IMAGE": "r/i:1"})
    kinds = [each["type"] for each in predicted["predictedResources"]]
    assert kinds.count("Microsoft.ServiceBus/namespaces") == 2
    jobs = [each for each in predicted["predictedResources"] if each["type"] == "Microsoft.App/jobs"]
    assert [job["name"] for job in jobs] == [
        predicted["outputs"][name] for name in ("reconcileJobName", "hourlyJobName")
    ]
    assert {job["properties"]["template"]["containers"][0]["image"] for job in jobs} == {"r/i:1"}
    assert (project / "build/nightly/jobs/reconcile/Dockerfile").is_file()
    # What the page and the hooks read of a deployment.
    read = re.findall(r"properties\.outputs\.(\w+)\.value", PAGE)
    assert set(read) <= set(predicted["outputs"])
    described = yaml.safe_load((project / "azure.yaml").read_text())
    assert described["name"] == "my-replicator"
    assert (project / described["services"]["app"]["project"] / "function_app.py").is_file()
    # FN40: the app is published also when the build of the image fails.
    assert "postprovision" not in described["hooks"]
    hook = described["hooks"]["postdeploy"]
    assert hook["continueOnError"] is True
    assert set(re.findall(r"\$([a-z]\w+)", hook["run"])) - {"image", "file", "job"} <= set(predicted["outputs"])
    ended, asked = run_hook(hook["run"], project, tmp_path)
    assert ended == 0
    assert any(each.startswith("acr build --subscription S --registry REG") for each in asked)


def run_hook(script: str, project: Path, folder: Path) -> tuple[int, list[str]]:
    """Run the hook where every command fails; return its exit code, and what it asked the Azure CLI for."""
    asked = folder / "asked"
    for name in ("az", "docker", "busway", "azd"):
        command = folder / "failing" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\n[ {name} != az ] || echo "$@" >> {shlex.quote(str(asked))}\nexit 1\n')
        command.chmod(0o755)
    settings = {"AZURE_SUBSCRIPTION_ID": "S", "AZURE_RESOURCE_GROUP": "g", "functionAppName": "app"}
    settings |= {"reconcileJobName": "job", "registryName": "REG"}
    environment = {"PATH": f"{folder / 'failing'}:{os.environ['PATH']}", **settings}
    done = subprocess.run(["sh", "-c", script], cwd=project, env=environment, check=False, capture_output=True)  # noqa: S603, S607 - our own hook
    return done.returncode, asked.read_text().splitlines()


def test_every_command_of_the_page_can_be_read_by_a_shell() -> None:
    blocks = re.findall(r"^```(?:sh)?\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 8
    subprocess.run(["sh", "-n", "-c", "\n".join(blocks)], check=True)  # noqa: S603, S607 - only read
