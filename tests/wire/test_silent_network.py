"""Commands against a network that accepts connections and answers nothing."""

import asyncio
import gc
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.topology.model import Kind, Name
from cli.topology.sites import partitions_of
from shared.errors import TargetUnavailable

# The SDK does not close what has never answered.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def silent() -> Iterator[int]:
    before = {*threading.enumerate()}
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
    # Whatever still waits ends now, and what it leaves is reported here.
    for thread in {*threading.enumerate()} - before:
        thread.join(10)
    gc.collect()


def test_a_receive_gives_up_and_says_what_does_not_answer(
    silent: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.bus_receive._ANSWER_SECONDS", 0.5)
    (tmp_path / "connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/copy.yaml").write_text(
        "task: copy\nsource: {connection: west, queue: orders}\nroutes: [{target: {connection: west, queue: other}}]\n"
    )
    key = "SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"
    env = {"WEST": f"Endpoint=sb://127.0.0.1:{silent};{key}", "BUSWAY_SILENCE_SECONDS": "0.1"}
    result = CliRunner().invoke(app, ["receive", "west/orders", "--config", str(tmp_path)], env=env)
    assert (result.exit_code, "west/orders: no answer in 0 s" in result.stderr) == (1, True), result.output
    assert "busway receive: waits for west/orders, " in result.stderr


def test_a_hub_that_never_answers_is_given_up(silent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.topology.sites._SECONDS", 0.5)
    key = "SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"
    settings = {"HUBS": f"Endpoint=sb://127.0.0.1:{silent};{key}"}
    with pytest.raises(TargetUnavailable, match="hubs/telemetry: no answer in 0 s"):
        asyncio.run(partitions_of(Name(Kind.HUB, ("telemetry",)), "HUBS", settings, "hubs"))
