"""docs/failover.md, docs/failover-clients.md: what commands print, the example, the drill."""

import json
import re
import shutil
from collections.abc import Iterator

import pytest
import yaml

from busway_clients.endpoints.document import read_document
from shared.clock import SystemClock
from shared.tasks.failover import FailoverFile
from tests.end_to_end.busway_process import PACKAGES, ROOT, BuswayProcess
from tests.end_to_end.shell import Shell, assert_shown

pytestmark = pytest.mark.long

PAGE = "".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in ("failover", "failover-clients"))
((EXAMPLE,),) = (re.findall(r"<!-- file: example -->\n```python\n(.*?)```\n", PAGE, re.DOTALL),)
((PATTERN, COMMANDS, PRINTED),) = re.findall(
    r"<!-- run: (\S+) -->\n```sh\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL
)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Give the repository's app a folder of its own, and the page's pattern one in it."""
    folder = tmp_path_factory.mktemp("app")
    for name in ("function_app.py", "host.json"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    shutil.copytree(ROOT / PATTERN, folder / "build/try")
    return Shell(folder)


@pytest.fixture(scope="module")
def running(shell: Shell) -> Iterator[BuswayProcess]:
    with BuswayProcess("start", "build/try", "--port", "0", folder=shell.folder) as process:
        while "Press Ctrl-C to stop everything." not in process.lines(1):
            pass
        yield process


def printed_by(shell: Shell, commands: str, **settings: str) -> str:
    """Return what a terminal shows."""
    result = shell.run(f"exec 2>&1\n{commands}", {"PYTHONPATH": PACKAGES, **settings})
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.mark.usefixtures("running")
def test_commands_print_what_the_page_shows(shell: Shell) -> None:
    assert f"cp -r {PATTERN} build/try\nbusway start build/try\n" in PAGE
    assert_shown(printed_by(shell, COMMANDS), PRINTED)


@pytest.mark.usefixtures("running")
def test_the_example_uses_the_site_in_the_document(shell: Shell) -> None:
    file = shell.folder / "build/try/endpoints.json"
    (shell.folder / "example.py").write_text(EXAMPLE)
    run = ". build/start/settings\npython example.py"
    document = json.loads(file.read_text())
    for site in ("west", "east"):
        document["active"] = {"send": site, "receive": site}
        document["serial"] += 1
        file.write_text(json.dumps(document))
        lines = printed_by(shell, run, ENDPOINTS=str(file)).splitlines()
        assert lines[0] == f"sent to {site}-example.servicebus.windows.net:5671"
        assert {f"received payment {number}" for number in range(3)} <= set(lines[1:])


def test_the_files_on_the_page_are_valid() -> None:
    shown = re.findall(r"```yaml\n(primary.*?)```", PAGE, re.DOTALL)
    azure = re.findall(r"```yaml\n(azure_dns.*?)```", PAGE, re.DOTALL)
    zone = shown[1].partition("zone:")[0]
    for text in (*shown, zone + azure[0]):
        FailoverFile.model_validate(yaml.safe_load(text))
    (document,) = re.findall(r"```json\n(\{[^`]*\"serial\"[^`]*)```", PAGE)
    assert read_document(document.encode(), "page", SystemClock().now()).serial == 12


def test_a_drill_loses_no_message() -> None:
    with BuswayProcess("failover", "drill", "--messages", "16", "--decide", "0", "--json") as drill:
        code, out, err = drill.result(120)
    assert err == ""
    report = json.loads(out)
    assert (code, report["are_met"]) == (0, True), report
    observed = report["observed"]
    assert observed["accepted"] == 48
    assert (observed["processed"], observed["lost"], report["lost_numbers"]) == (48, 0, [])
    assert observed["failbacks refused"] > 0
    assert 0 < observed["cut to publishing again"] <= 30
    assert observed["cut to consuming again"] >= observed["cut to switch"]
