import shutil
from pathlib import Path

from tests.end_to_end.busway_process import ROOT, BuswayProcess

CONFIGS = [
    argument for site in ("west", "east") for argument in ("--config", str(ROOT / f"infra/emulators/{site}.json"))
]
LANES = [f"-lane-{number}" for number in range(2, 9)]
TASKS = {
    *(f"events-{way}{lane}" for way in ("west-to-east", "east-to-west") for lane in ("", *LANES)),
    "payments-west-to-east",
    "jobs-west-to-east",
    "jobs-east-to-west",
}


def test_it_prints_its_functions_when_ready_and_stops_on_sigterm() -> None:
    with BuswayProcess("broker", *CONFIGS, "--port", "0") as broker:
        west, east = (line.split(" ", 2)[2] for line in broker.lines(2))
        with BuswayProcess("host", settings={"WEST": west, "EAST": east}) as host:
            word, *functions = host.lines(1)[0].split()
            assert word == "ready"
            assert set(functions) == TASKS
            code, seconds = host.stop()
            assert code == 0
            assert seconds < 10


def test_every_problem_of_the_configuration_is_reported(tmp_path: Path) -> None:
    for name in ("function_app.py", "host.json"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "config", tmp_path / "tasks-of-mine")
    task = tmp_path / "tasks-of-mine/tasks/payments.yaml"
    task.write_text(task.read_text().replace("connection: east", "connection: eest").replace("rejects:", "rejected:"))
    other = tmp_path / "tasks-of-mine/tasks/jobs.yaml"
    other.write_text(other.read_text().replace("connection: west", "connection: vest"))
    with BuswayProcess("host", folder=tmp_path, settings={"BUSWAY_CONFIG": "tasks-of-mine"}) as host:
        code, out, err = host.result()
    assert (code, out) == (1, "")
    assert "payments.yaml: rejected: unknown key" in err
    assert "unknown connection 'vest'" in err


def test_a_folder_without_an_app_is_reported(tmp_path: Path) -> None:
    with BuswayProcess("host", folder=tmp_path) as host:
        code, _, err = host.result()
    assert code == 1
    assert "no function_app.py here" in err
