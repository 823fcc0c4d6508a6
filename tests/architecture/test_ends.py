"""A kind of end is named in its folder in shared/ends/ only, and clients are opened at one place for each service."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from shared.ends.registry import kind, kinds, names
from tests.architecture.imports import ROOT

SEARCHED = ("shared", "functions", "cli", "host", "function_app.py")

# Modules in which a word that is also the name of a kind has another meaning.
OTHER_MEANINGS = {
    "shared/codecs/envelope.py": "the forms of a message, an attribute of envelopes on the wire",
    "shared/tasks/models.py": "the form of Kafka's headers in connections.yaml",
    "shared/testing.py": "the connections that tests of editors need, of some kind",
    "shared/editors/content/envelopes.py": "the member of an envelope with the AMQP sections",
    "shared/editors/state/claims.py": "the form of a claim",
    "cli/places.py": "the scheme of a URL",
    "cli/stack.py": "the name of a process and of its log file",
}

# Where clients are opened by a connection string or with an identity.
OPENS = {
    "shared/access/client.py": "a client of any SDK",
    "shared/access/identity.py": "the app's identity",
    "shared/ends/storage_queue/clients.py": "checks a connection string",
    "shared/stores/storage_account.py": "likewise",
    "cli/failover/drill/applications.py": "an application of the drill, which opens the SDK itself",
}
_OPENERS = {"from_connection_string", "DefaultAzureCredential"}
_KINDS = names()


# Parsing takes seconds: only files with one of these texts can fail a test.
_WORTH_READING = re.compile("|".join((r"\.kind\b", *_OPENERS, *(f"[\"']{name}" for name in _KINDS))))


@cache
def nodes() -> tuple[tuple[str, ast.AST], ...]:
    """Return the nodes that name a kind, open a client or compare, each with its file."""
    files = [
        file
        for path in (ROOT / root for root in SEARCHED)
        for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))
    ]
    return tuple(
        (str(file.relative_to(ROOT)), node)
        for file in files
        if _WORTH_READING.search(source := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Compare) or _names_a_kind(node) or _opens_a_client(node)
    )


def _names_a_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in _KINDS


def _opens_a_client(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else None
    return (isinstance(called, ast.Attribute) and called.attr in _OPENERS) or (
        isinstance(node, ast.Name) and node.id in _OPENERS
    )


def test_each_folder_of_a_kind_has_the_record_of_its_name() -> None:
    assert {kind(name).name for name in names()} == names()
    assert [found.rank for found in kinds()] == [*range(1, len(names()) + 1)]


def test_no_code_outside_its_folder_names_a_kind() -> None:
    naming = {file for file, node in nodes() if _names_a_kind(node) and not file.startswith("shared/ends/")}
    assert naming == set(OTHER_MEANINGS)


def test_no_code_decides_by_the_name_of_a_kind() -> None:
    deciding = [
        f"{file}:{node.lineno}"
        for file, node in nodes()
        if isinstance(node, ast.Compare)
        # Two names may be equal: that says nothing about either.
        and sum(_is_name_of_a_kind(side) for side in (node.left, *node.comparators)) == 1
    ]
    assert deciding == []


def _is_name_of_a_kind(node: ast.expr) -> bool:
    """Whether an expression is `connection.kind` or `….connections[…].kind`."""
    return isinstance(node, ast.Attribute) and node.attr == "kind" and "connection" in ast.unparse(node.value)


def test_clients_are_opened_at_one_place_for_each_service() -> None:
    assert {file for file, node in nodes() if _opens_a_client(node)} == set(OPENS)


# Loads the connections in each folder with the modules that are there, in a process of its own. The foreign packages,
# which take long, are imported once.
LOAD = """
import os, sys
import pydantic, yaml
for folder in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(folder)
        from pathlib import Path
        from shared.errors import ConfigError
        from shared.tasks.files import load_connections
        try:
            load_connections(Path())
        except ConfigError as error:
            print(*error.problems, flush=True)
        os._exit(0)
    os.wait()
"""


def test_without_its_folder_a_kind_is_unknown_and_the_others_work(tmp_path: Path) -> None:
    ends = ROOT / "shared/ends"
    for name in sorted(names()):
        (tmp_path / name / "shared/ends").mkdir(parents=True)
        for path in (*ends.parent.iterdir(), *ends.iterdir()):
            if path not in {ends, ends / name.replace("-", "_")}:
                (tmp_path / name / path.relative_to(ROOT)).symlink_to(path)
        used = "event-hubs" if name == "service-bus" else "service-bus"
        (tmp_path / name / "connections.yaml").write_text(
            f"west: {{kind: {used}, setting: WEST}}\nother: {{kind: {name}, setting: OTHER}}\n"
        )
    command = [sys.executable, "-c", LOAD, *(str(tmp_path / name) for name in sorted(names()))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S603 - the text above
    for name, line in zip(sorted(names()), done.stdout.splitlines(), strict=True):
        others = [repr(found.name) for found in kinds(lambda found, name=name: found.name != name)]  # type: ignore[misc]
        assert f"other: kind: is '{name}', expected {', '.join(others[:-1])} or {others[-1]}" in line
