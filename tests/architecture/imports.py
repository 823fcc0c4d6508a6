"""What each module of the repository imports, read from its source."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = (
    "function_app",
    "functions",
    "shared",
    "cli",
    "host",
    "busway_broker",
    "clients",
    "busway_reconcile",
    "benchmarks",
    "tests",
)


_FOLDERS = {"busway_broker": "broker", "busway_reconcile": "jobs/reconcile"}
"""Where the packages of distributions are."""


def imported_names(source: str, package: str) -> set[str]:
    """
    Return the dotted names that *source*, a module of *package*, imports.

    Shape:   `from a.b import c` gives a.b.c, since c may be a module; relative imports are made absolute.
    """
    names = set[str]()
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            kept = parents[: len(parents) - node.level + 1] if node.level else []
            base = [*kept, *([node.module] if node.module else [])]
            names.update(".".join([*base, alias.name]) for alias in node.names)
    return names


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node: imports are not in expressions, which are most of the tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def modules(*roots: str) -> dict[str, set[str]]:
    """Return the modules under *roots* (dotted names of packages or modules) with the names each imports."""
    return {name: imported for root in roots for name, imported in _modules(root).items()}


@cache  # the files do not change during a run, and parsing them takes a second
def _modules(root: str) -> dict[str, set[str]]:
    found = {}
    base = ROOT / _FOLDERS.get(root.partition(".")[0], "")
    path = base.joinpath(*root.split("."))
    for file in [path.with_suffix(".py"), *sorted(path.rglob("*.py"))]:
        if not file.is_file():
            continue
        parts = file.relative_to(base).with_suffix("").parts
        package = parts[:-1]
        name = package if parts[-1] == "__init__" else parts
        found[".".join(name)] = imported_names(file.read_text(encoding="utf-8"), ".".join(package))
    return found


def within(name: str, roots: tuple[str, ...]) -> bool:
    """Whether the dotted *name* is one of *roots* or lies below one."""
    return any(name == root or name.startswith(f"{root}.") for root in roots)


def is_standard(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in sys.stdlib_module_names
