"""
Build the wheel of busway-broker, which carries what the broker shares with the app as busway_broker.shared.

The name in import statements is the only difference to the sources (docs/decisions/0110-houses.md).
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHARED = Path(__file__).resolve().parents[1] / "shared"
CARRIED = ("__init__.py", "amqp/**/*.py", "rules/**/*.py", "clock.py", "durations.py", "errors.py", "printable.py")
IMPORT = re.compile(r"^(\s*from )(?=shared[ .])", re.MULTILINE)


class BuildPackage(build_py):
    """Copies the package and what it shares; an editable install uses both where they are."""

    def run(self) -> None:
        """Build."""
        package = Path(self.build_lib) / "busway_broker"
        # A file of an earlier build would become part of the wheel.
        shutil.rmtree(package, ignore_errors=True)
        super().run()
        if self.editable_mode:
            return
        if not SHARED.is_dir():
            raise SystemExit(f"{SHARED}: is missing; build the wheel in a checkout, not from a source distribution")
        for source in (file for pattern in CARRIED for file in SHARED.glob(pattern)):
            target = package / "shared" / source.relative_to(SHARED)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        for module in package.rglob("*.py"):
            text = module.read_text(encoding="utf-8")
            module.write_text(IMPORT.sub(r"\1busway_broker.", text), encoding="utf-8")


setup(cmdclass={"build_py": BuildPackage})
