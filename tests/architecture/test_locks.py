"""Each requirements file has a lock file beside it that agrees with it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = (
    "requirements.txt",
    "requirements-dev.txt",
    "jobs/reconcile/requirements.txt",
    "tests/jobs/requirements-spark-3.5.txt",
    "tests/jobs/requirements-spark-4.2.txt",
)

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def normalized(name: str) -> str:
    """Return the name as the package index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> dict[str, str]:
    return {normalized(name): version for name, version in PIN.findall(text)}


@pytest.mark.parametrize("file", FILES)
def test_the_lock_has_the_pinned_versions(file: str) -> None:
    pinned = pins((ROOT / file).read_text())
    assert pinned, f"{file}: found no pinned package"
    locked = pins((ROOT / file).with_suffix(".lock").read_text())
    assert {name: locked.get(name) for name in pinned} == pinned, "run: make lock"


@pytest.mark.parametrize("file", FILES)
def test_every_locked_package_has_a_hash_and_no_address(file: str) -> None:
    text = (ROOT / file).with_suffix(".lock").read_text()
    entries = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    without = [entry.splitlines()[0] for entry in entries if entry.strip() and "--hash=sha256:" not in entry]
    assert without == []
    assert "://" not in text


def test_every_requirements_file_is_locked() -> None:
    places = [
        ROOT.glob("requirements*.txt"),
        *((ROOT / folder).rglob("requirements*.txt") for folder in ("clients", "jobs", "tests")),
    ]
    assert {str(path.relative_to(ROOT)) for place in places for path in place} == set(FILES)
