"""The job without a lasting disk: each night starts with an empty folder and two containers in Azurite."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from busway_reconcile import container as program
from busway_reconcile.container import MARK, silence
from busway_reconcile.journal.address import WrongJournal, address_of
from busway_reconcile.lease import LeaseLost, leased
from busway_reconcile.read.staging import container, stage
from busway_reconcile.summary import Summary
from tests.azurite import well_known_account
from tests.jobs.journals import Journals

Containers = tuple[ContainerClient, ContainerClient]
"""The journal and the results."""

FIRST = datetime(2026, 11, 18, tzinfo=UTC)
SECOND = FIRST + timedelta(days=1)
MINUTE = timedelta(minutes=1)
A_FILE = "task=t/date=2026-11-18/hour=00/role=source/a"
RUNS = ("2026-11-18T00--2026-11-19T00", "2026-11-19T00--2026-11-20T00")


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Containers]:
    storage = well_known_account()
    monkeypatch.setenv("BUSWAY_JOURNAL_STORAGE", storage)
    made = [
        ContainerClient.from_connection_string(storage, f"{name}-{abs(hash(request.node.name))}")
        for name in ("journal", "results")
    ]
    for each in made:
        each.create_container()
    yield made[0], made[1]
    for each in made:
        each.close()


def start(containers: Containers, work: Path, now: datetime, *options: str) -> int:
    """Run the program on an empty disk; return the exit code."""
    shutil.rmtree(work, ignore_errors=True)
    journal, results = (container.url for container in containers)
    where = ["--journal", journal, "--results", f"{results}/nightly-runs", "--work", str(work)]
    return program.run([*where, *options, "--now", now.isoformat(), "--memory", "1g"])


def one_night(containers: Containers, work: Path, day: datetime) -> int:
    return start(containers, work, day + timedelta(days=1, hours=2), "--date", day.date().isoformat())


def put(container: ContainerClient, folder: Path) -> None:
    for path in folder.rglob("*.gz"):
        container.upload_blob(path.relative_to(folder).as_posix(), path.read_bytes(), overwrite=True)


def put_folder(container: ContainerClient, name: str) -> None:
    """Upload the blob that an account with a hierarchical namespace lists for a folder."""
    container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})


def summary(results: ContainerClient, run: str) -> Summary:
    return Summary.from_json(results.download_blob(f"nightly-runs/runs/{run}/summary.json").readall().decode())


def names(results: ContainerClient) -> list[str]:
    return [blob.name for blob in results.list_blobs()]


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.usefixtures("spark")
def test_the_next_night_downloads_all_that_a_night_published(containers: Containers, tmp_path: Path) -> None:
    journal, results = containers
    journals = Journals()
    for number in range(4):
        at = FIRST + 5 * number * MINUTE
        journals.carried(1 + number, at, at + MINUTE)
    journals.received(500, FIRST + MINUTE, FIRST + MINUTE)
    journals.received(501, SECOND - 5 * MINUTE, SECOND - 5 * MINUTE)
    put(journal, journals.write(tmp_path / "written")[0].parents[4])
    put_folder(journal, f"task={journals.task}")
    put_folder(journal, f"task={journals.task}/date={FIRST:%Y-%m-%d}")
    # The summary has the findings; another exit code would make the platform retry.
    assert one_night(containers, tmp_path / "work", FIRST) == 0
    found = summary(results, RUNS[0])
    assert (found.exit_code, found.counts) == (1, {"delivered": 4, "missing": 1, "in_flight": 1})
    published = {name.removeprefix("nightly-runs/") for name in names(results)}
    assert {f"runs/{RUNS[0]}/{name}" for name in ("summary.json", "report.html", "repair.jsonl")} <= published
    for name in ("runs", f"runs/{RUNS[0]}", f"runs/{RUNS[0]}/a-table-that-is-gone", "compacted"):
        put_folder(results, f"nightly-runs/{name}")
    brought = tmp_path / "brought"
    program.Results(results, "nightly-runs", brought).download("2026-11-12T00", without=RUNS[1])
    assert files(brought) == files(tmp_path / "work" / "out")
    assert {name for name in published if f"{RUNS[0]}/open/" in name}


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_hours_continue_after_each_other_on_empty_disks(containers: Containers, tmp_path: Path) -> None:
    journal, results = containers
    journals = Journals()
    for number in range(4 * 60):
        at = FIRST + number * MINUTE
        journals.received(1 + number, at, at + MINUTE / 60)
        if number != 90:
            journals.outcome(1 + number, at + MINUTE / 30)
    put(journal, journals.write(tmp_path / "written")[0].parents[4])
    hours = [f"{FIRST + hour * 60 * MINUTE:%Y-%m-%dT%H}" for hour in range(5)]
    ended = [f"nightly-runs/runs/{start}--{end}/summary.json" for start, end in pairwise(hours)]
    assert start(containers, tmp_path / "work", FIRST + 75 * MINUTE, "--hourly") == 0
    assert [name in names(results) for name in ended] == [True, False, False, False]
    # A start was skipped, and an attempt ended before it had a summary.
    results.upload_blob(ended[1].replace("summary.json", "missing/part-of-an-attempt"), b"")
    assert start(containers, tmp_path / "work", FIRST + 255 * MINUTE, "--hourly") == 0
    assert [name in names(results) for name in ended] == [True, True, True, True]
    assert not any(name.endswith("part-of-an-attempt") for name in names(results))
    found = [summary(results, name.split("/")[2]) for name in ended]
    assert [each.tasks[0].verdicts.get("missing", 0) for each in found] == [0, 0, 0, 1]
    assert [each.previous_run for each in found[1:]] == [each.run for each in found[:-1]]
    # Nothing is done again.
    before = {blob.name: blob.etag for blob in results.list_blobs() if not blob.name.endswith("/lease")}
    assert start(containers, tmp_path / "work", FIRST + 260 * MINUTE, "--hourly") == 0
    assert before == {blob.name: blob.etag for blob in results.list_blobs() if not blob.name.endswith("/lease")}
    assert one_night(containers, tmp_path / "work", FIRST) == 0
    night = summary(results, RUNS[0])
    assert (night.counts, night.notes) == ({"delivered": 239, "missing": 1}, [])


def test_the_hourly_job_says_that_the_timer_of_the_app_stands_still(containers: Containers) -> None:
    """FN13: timers may stop for good, and all other watchers hang on them."""
    _, results = containers
    now = datetime.now(UTC)
    assert silence(results, "", now) == "the timer of the app has not run yet; docs/runbook.md, Alert: timer-silent"
    results.upload_blob(MARK, b"{}")
    assert silence(results, "", now + 44 * MINUTE) is None
    said = silence(results, "", now + 47 * MINUTE)
    assert said is not None
    assert said.startswith(f"the timer of the app has not run since {now:%Y-%m-%d %H:}")
    # What the alert looks for in the log.
    query = (Path(__file__).parents[2] / "infra/modules/alerts.yaml").read_text()
    assert "Log has 'timer of the app has not run'" in query
    assert "timer of the app has not run" in said


def test_two_runs_do_not_publish_at_the_same_time(containers: Containers) -> None:
    _, results = containers
    with leased(results, "nightly-runs", print) as check:
        check()
        with pytest.raises(LeaseLost, match="nightly-runs/lease: another run"):
            leased(results, "nightly-runs", print, longest_wait=0).__enter__()
    with leased(results, "nightly-runs", print, longest_wait=0) as check:
        check()


@pytest.mark.usefixtures("spark")
def test_a_missing_container_gives_no_result(
    containers: Containers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, results = containers
    results.delete_container()
    assert one_night(containers, tmp_path / "work", FIRST) == 2
    assert "ContainerNotFound" in capsys.readouterr().out


def test_two_journals_are_not_downloaded_to_one_folder(containers: Containers, tmp_path: Path) -> None:
    one, other = containers
    one.upload_blob(f"{A_FILE}-1.jsonl.gz", b"one")
    other.upload_blob(f"{A_FILE}-2.jsonl.gz", b"other")
    assert [stage(one, "", tmp_path), stage(one, "", tmp_path)] == [1, 0]
    with pytest.raises(WrongJournal, match=f"{one.container_name}, got .*{other.container_name}"):
        stage(other, "", tmp_path)
    assert [path.name for path in tmp_path.rglob("*.gz")] == ["a-1.jsonl.gz"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://acc.blob.core.windows.net/journal?sv=1&sig=x", "acc/journal"),
        ("https://acc.privatelink.blob.core.windows.net/journal/", "acc/journal"),
        ("abfss://journal@acc.dfs.core.windows.net/", "acc/journal"),
        ("abfss://journal@acc.dfs.core.windows.net/of/west", "acc/journal/of/west"),
        ("http://127.0.0.1:10000/devstoreaccount1/journal", "devstoreaccount1/journal"),
        ("file:/home/me/journal", "file:/home/me/journal"),
    ],
)
def test_all_addresses_of_a_journal_are_the_same(address: str, name: str) -> None:
    assert address_of(address) == name


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("https://acc.blob.core.windows.net/acc/west", ""),
        ("http://127.0.0.1:10000/devstoreaccount1/acc/west", "BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1;"),
        ("http://127.0.0.1:10000/acc/acc/west", "BlobEndpoint=http://127.0.0.1:10000/acc;"),
    ],
)
def test_an_account_in_the_path_of_an_emulator_is_not_the_container(address: str, endpoint: str) -> None:
    client, prefix = container(address, f"DefaultEndpointsProtocol=http;AccountName=acc;AccountKey=a2V5;{endpoint}")
    assert (client.container_name, prefix) == ("acc", "west")


def test_markers_and_summaries_are_deleted_first_and_uploaded_last(containers: Containers, tmp_path: Path) -> None:
    _, client = containers
    folder = tmp_path / "out"
    run = folder / "runs" / RUNS[0]
    for path in (
        run / "summary.json",
        run / "missing" / "part-1.parquet",
        folder / "compacted/hours/2026-11-18T00.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("old")
    program.Results(client, "", folder).publish()
    shutil.rmtree(folder)
    results = program.Results(client, "", folder)
    results.download("2026-11-18T00", without=RUNS[1])
    for path in folder.rglob("*.*"):
        path.write_text("newer")
    shutil.rmtree(run / "missing")
    calls: list[tuple[str, str]] = []

    class RecordingContainer:
        """The container, with a record of the calls in order."""

        url = client.url

        def delete_blob(self, name: str) -> None:
            calls.append(("delete", name.rpartition("/")[2]))
            client.delete_blob(name)

        def upload_blob(self, name: str, content: bytes, *, overwrite: bool) -> None:
            calls.append(("upload", name.rpartition("/")[2]))
            client.upload_blob(name, content, overwrite=overwrite)

    results._client = RecordingContainer()  # type: ignore[assignment] # it has what publishing needs
    results.publish()
    assert calls == [
        ("delete", "summary.json"),
        ("delete", "2026-11-18T00.json"),
        ("delete", "part-1.parquet"),
        ("upload", "2026-11-18T00.json"),
        ("upload", "summary.json"),
    ]
