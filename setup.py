"""
Build the wheel of busway, whose package carries the app's folder as it is here.

In a checkout the command uses the folder itself (docs/decisions/0112-distributions.md).
"""

import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CARRIED = (
    *(
        "function_app.py",
        "host.json",
        "local.settings.json.example",
        "requirements.txt",
        "config",
        "functions",
        "shared",
    ),
    *("cli", "host", "broker/busway_broker", "clients/busway_clients", "infra"),
    *(f"jobs/reconcile/{name}" for name in ("busway_reconcile", "Dockerfile", "requirements.txt", "requirements.lock")),
    *("azure.yaml", "package.json", "package-lock.json"),
)
# The pages that `busway docs` prints (cli/pages.py).
PAGES = ("docs", "docs/editors", "docs/patterns", "docs/reference")
LEFT_OUT = shutil.ignore_patterns("__pycache__")


class BuildPackage(build_py):
    """Copies the app's folder; an editable install uses it where it is."""

    def run(self) -> None:
        """Build."""
        package = Path(self.build_lib) / "busway"
        # A file of an earlier build would become part of the wheel.
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        if self.editable_mode:
            return
        pages = [str(page.relative_to(ROOT)) for folder in PAGES for page in (ROOT / folder).glob("*.md")]
        for name in (*CARRIED, *pages):
            source, target = ROOT / name, package / "app" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=LEFT_OUT)
            else:
                shutil.copyfile(source, target)
        (package / "app/commit").write_text(commit())


def commit() -> str:
    """Return the commit of the checkout, empty without one."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=9", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    return done.stdout.strip()


setup(cmdclass={"build_py": BuildPackage})
