"""What the command takes from npm: Azurite and recorded webhooks, which `make` or the first use installs."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from busway import IS_CHECKOUT, ROOT
from shared.errors import ConfigError, Problem, TargetUnavailable

_LISTS = ("package.json", "package-lock.json")
_NODE = "Azurite needs Node.js 20 or later with npm, see https://nodejs.org"


def node_modules() -> Path:
    """
    Return the folder with the packages: of the checkout, or in the user's cache, which npm then fills once.

    Raises ConfigError if there is no Node.js or `make` has not installed the packages, TargetUnavailable if npm fails.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Another version of the packages has another folder.
    version = hashlib.sha256((ROOT / _LISTS[1]).read_bytes()).hexdigest()[:12]
    folder = (ROOT if IS_CHECKOUT else caches / "busway" / version) / "node_modules"
    wanted = ("node",) if IS_CHECKOUT or folder.is_dir() else ("node", "npm")
    problems = [Problem(program, "is not installed", _NODE) for program in wanted if shutil.which(program) is None]
    if IS_CHECKOUT and not (folder / "azurite").is_dir():
        problems.append(Problem(str(folder), "Azurite is not installed", "npm ci --ignore-scripts"))
    if problems:
        raise ConfigError(problems)
    if not folder.is_dir():
        _install(folder.parent)
    return folder


def _install(folder: Path) -> None:
    print(f"Installing Azurite with npm into {folder}, once …", flush=True)
    made = folder.with_name(f"{folder.name}.{os.getpid()}")
    made.mkdir(parents=True)
    try:
        for name in _LISTS:
            shutil.copyfile(ROOT / name, made / name)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise TargetUnavailable(f"npm ci in {made}: {lines[0]}")
        # Another process may have been faster.
        if not folder.is_dir():
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
