"""The package as it is installed: what it brings, what it runs on, what it leaves out."""

import importlib
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.clients.applications import ENVIRONMENT

ROOT = Path(__file__).parents[2]
CLIENTS = ROOT / "clients"
PINNED = ("requirements.txt", "requirements-dev.txt", "cli/requirements.txt")


def project() -> Any:
    return tomllib.loads((CLIENTS / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def name_of(requirement: Any) -> Any:
    return requirement.partition(">")[0].partition("[")[0]


def test_package_depends_on_the_sdk_only() -> None:
    assert {name_of(each) for each in project()["dependencies"]} == {"azure-servicebus"}
    extras = project()["optional-dependencies"]
    assert {extra: [name_of(each) for each in needed] for extra, needed in extras.items()} == {
        "dns": ["dnspython"],
        "signatures": ["cryptography"],
        # The newest azure-data-tables has no extra for asyncio.
        "tables": ["azure-data-tables", "aiohttp"],
        "relay": ["aiohttp", "yarl"],
        "websockets": ["aiohttp", "websocket-client"],
    }


def test_sdk_reports_a_settlement_that_was_not_applied() -> None:
    """SR76: up to 7.14.3 a share of the completed messages came again, without an error (python 48143)."""
    (sdk,) = project()["dependencies"]
    earliest = sdk.partition(">=")[2].partition(",")[0]
    assert tuple(map(int, earliest.split("."))) >= (7, 15)


def test_missing_extra_is_named() -> None:
    script = textwrap.dedent("""
        import importlib, sys
        lacking = {
            "tables": ("azure.data", "tables", "aio.tables"),
            "relay": ("yarl", "relay"),
            "dns": ("dns", "endpoints.dns"),
        }
        for missing, *_ in lacking.values():
            sys.modules[missing] = None
        sys.modules["azure.identity"] = sys.modules["cryptography"] = None
        import busway_clients.aio, busway_clients.sessions
        from busway_clients import MissingExtra
        from busway_clients.endpoints import signature
        imports = [
            (name, lambda module=module: importlib.import_module(f"busway_clients.{module}"))
            for name, (_, *modules) in lacking.items()
            for module in modules
        ]
        for name, act in [*imports, ("signatures", lambda: signature.sign(b"", b"", ""))]:
            try:
                act()
            except MissingExtra as error:
                assert isinstance(error, ImportError)
                assert f"busway-clients[{name}]" in str(error), error
            else:
                raise SystemExit(f"{name} is not missed")
    """)
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)  # noqa: S603 - our own script
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("module", ["aio", "aio.tables", "endpoints.dns", "relay", "sessions", "tables"])
def test_each_public_module_can_be_imported_first(module: str) -> None:
    command = [sys.executable, "-W", "error", "-c", f"import busway_clients.{module}"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)  # noqa: S603 - our own script
    assert (done.returncode, done.stderr) == (0, "")


def test_dependencies_are_pinned_for_the_tests() -> None:
    pinned = "".join((ROOT / name).read_text(encoding="utf-8") for name in PINNED)
    needed = [
        *project()["dependencies"],
        *(each for extra in project()["optional-dependencies"].values() for each in extra),
    ]
    assert [each for each in needed if f"\n{name_of(each)}==" not in pinned] == []


@pytest.mark.parametrize(
    "name",
    [
        "sessions.tables.TableStore",
        "aio.sessions.tables.TableStore",
        "receivers.stores.tables.TablesStore",
        "senders.table_roles.TableRoles",
    ],
)
def test_a_documented_name_of_0_2_0_is_where_it_was(name: str) -> None:
    module, _, found = name.rpartition(".")
    assert getattr(importlib.import_module(f"busway_clients.{module}"), found).__name__ == found


def test_wheel_contains_the_package_and_its_type_marker(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    copy = tmp_path / "clients"
    copy.mkdir()
    for file in [CLIENTS / "pyproject.toml", CLIENTS / "README.md", *CLIENTS.glob("busway_clients/**/*")]:
        if file.is_file() and "__pycache__" not in file.parts:
            target = copy / file.relative_to(CLIENTS)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    subprocess.run([*command, "--no-build-isolation", "--wheel-dir", tmp_path, copy], check=True)  # noqa: S603 - our own package
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    held = {str(file.relative_to(CLIENTS)) for file in CLIENTS.glob("busway_clients/**/*.py")}
    assert {*held, "busway_clients/py.typed"} <= names
    assert {name.partition("/")[0] for name in names} == {
        "busway_clients",
        wheel.name.partition("-py3")[0] + ".dist-info",
    }
