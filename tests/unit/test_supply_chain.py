"""What CI, deployments and images take from elsewhere is named by commit, digest or hash, and is audited."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = [*sorted((ROOT / ".github/workflows").glob("*.yml")), ROOT / "cli/project/template/deploy.yml"]
CI = (ROOT / ".github/workflows/ci.yml").read_text()


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_commit_with_their_version(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text())
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_checkout_keeps_its_token_and_nothing_may_write(workflow: Path) -> None:
    checkouts = [step for step in steps(workflow) if str(step.get("uses")).startswith("actions/checkout@")]
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] in ({}, {"contents": "read"})
    for job in document["jobs"].values():
        rights = job.get("permissions", {})
        assert rights in ({}, {"contents": "read", "id-token": "write"})


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_no_script_has_a_text_of_somebody_in_it(workflow: Path) -> None:
    scripts = [step["run"].replace("${{ matrix.", "") for step in steps(workflow) if "run" in step]
    assert [script for script in scripts if "${{" in script] == []


def test_images_are_named_by_digest() -> None:
    named = re.findall(r"^FROM (\S+)", (ROOT / "jobs/reconcile/Dockerfile").read_text(), re.MULTILINE)
    for template in (ROOT / "infra").rglob("*.bicep"):
        named += re.findall(r"'((?:mcr|docker|ghcr|quay)\.[\w.]+/[^']+)'", template.read_text())
    assert len(named) == 2
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", each) for each in named)


def test_ci_audits_each_lock_file_and_installs_its_auditor_by_hash() -> None:
    locks = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("requirements*.lock") if "/." not in str(path)]
    ours = [lock for lock in locks if not lock.startswith(("build/", "node_modules/"))] + [".github/requirements.lock"]
    assert [lock for lock in ours if lock.removesuffix(".lock") not in CI] == []
    assert "npm audit --package-lock-only" in CI
    assert "--require-hashes --requirement .github/requirements.lock" in CI
