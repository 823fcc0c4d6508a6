"""The job where no disk outlives it: each night begins with an empty folder and two containers in Azurite."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.storage.blob import ContainerClient

from jobs.reconcile import container as night
from jobs.reconcile.origin import AnotherJournal, address_of
from jobs.reconcile.staging import stage
from jobs.reconcile.summary import Summary
from tests.azurite import running_azurite
from tests.jobs.journals import Journals

FIRST = datetime(2026, 11, 18, tzinfo=UTC)
SECOND = FIRST + timedelta(days=1)
MINUTE = timedelta(minutes=1)
A_FILE = "task=t/date=2026-11-18/hour=00/role=source/a"
RUNS = ("2026-11-18T00--2026-11-19T00", "2026-11-19T00--2026-11-20T00")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory):
    with running_azurite(tmp_path_factory.mktemp("azurite")) as address:
        yield address


@pytest.fixture
def containers(storage, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    monkeypatch.setenv("BUSWAY_JOURNAL_STORAGE", storage)
    made = [
        ContainerClient.from_connection_string(storage, f"{name}-{abs(hash(request.node.name))}")
        for name in ("journal", "results")
    ]
    for each in made:
        each.create_container()
    yield made
    for each in made:
        each.close()


def one_night(containers, work, day):
    """Run a night on an empty disk; return the exit code."""
    shutil.rmtree(work, ignore_errors=True)
    journal, results = (each.url for each in containers)
    now = (day + timedelta(days=1, hours=2)).isoformat()
    where = ["--journal", journal, "--results", f"{results}/nightly-runs", "--work", str(work)]
    return night.run([*where, "--date", day.date().isoformat(), "--now", now, "--memory", "1g"])


def put(container, folder) -> None:
    for path in folder.rglob("*.gz"):
        container.upload_blob(path.relative_to(folder).as_posix(), path.read_bytes(), overwrite=True)


def put_folder(container, name) -> None:
    """Make what an account with real folders lists for one."""
    container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})


def summary(results, run):
    return Summary.from_json(results.download_blob(f"nightly-runs/runs/{run}/summary.json").readall().decode())


def names(results):
    return [blob.name for blob in results.list_blobs()]


def files(folder):
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


@pytest.mark.usefixtures("spark")
def test_a_night_is_published_and_the_next_finds_all_of_it_on_an_empty_disk(containers, tmp_path: Path) -> None:
    journal, results = containers
    journals = Journals()
    for number in range(4):
        at = FIRST + 5 * number * MINUTE
        journals.received(1 + number, at, at + MINUTE)
        journals.outcome(1 + number, at + MINUTE)
    journals.received(500, FIRST + MINUTE, FIRST + MINUTE)
    journals.received(501, SECOND - 5 * MINUTE, SECOND - 5 * MINUTE)
    put(journal, journals.write(tmp_path / "written")[0].parents[4])
    put_folder(journal, f"task={journals.task}")
    put_folder(journal, f"task={journals.task}/date={FIRST:%Y-%m-%d}")
    # The findings are in the summary; the exit code is the platform's, which would try again.
    assert one_night(containers, tmp_path / "work", FIRST) == 0
    told = summary(results, RUNS[0])
    assert (told.exit_code, told.counts) == (1, {"delivered": 4, "missing": 1, "in_flight": 1})
    published = {name.removeprefix("nightly-runs/") for name in names(results)}
    assert {f"runs/{RUNS[0]}/{name}" for name in ("summary.json", "report.html", "repair.jsonl")} <= published
    for name in ("runs", f"runs/{RUNS[0]}", f"runs/{RUNS[0]}/a-table-that-is-gone", "compacted"):
        put_folder(results, f"nightly-runs/{name}")
    brought = tmp_path / "brought"
    night.Results(results, "nightly-runs", brought).bring("2026-11-12T00", but=RUNS[1])
    assert files(brought) == files(tmp_path / "work" / "out")
    assert {name for name in published if f"{RUNS[0]}/open/" in name}


@pytest.mark.usefixtures("spark")
def test_a_container_that_is_missing_is_no_result(
    containers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, results = containers
    results.delete_container()
    assert one_night(containers, tmp_path / "work", FIRST) == 2
    assert "ContainerNotFound" in capsys.readouterr().out


def test_two_journals_are_not_brought_to_one_folder(containers, tmp_path: Path) -> None:
    one, other = containers
    one.upload_blob(f"{A_FILE}-1.jsonl.gz", b"one")
    other.upload_blob(f"{A_FILE}-2.jsonl.gz", b"other")
    assert [stage(one, "", tmp_path), stage(one, "", tmp_path)] == [1, 0]
    with pytest.raises(AnotherJournal, match=f"{one.container_name}, and this is .*{other.container_name}"):
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
def test_a_journal_is_the_same_however_it_is_reached(address: str, name: str) -> None:
    assert address_of(address) == name


def test_markers_and_summaries_go_first_and_come_last(containers, tmp_path: Path) -> None:
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
    night.Results(client, "", folder).publish()
    shutil.rmtree(folder)
    results = night.Results(client, "", folder)
    results.bring("2026-11-18T00", but=RUNS[1])
    for path in folder.rglob("*.*"):
        path.write_text("newer")
    shutil.rmtree(run / "missing")
    told = []

    class Noting:
        """The container, noting what is done to it in which order."""

        url = client.url

        def delete_blob(self, name) -> None:
            told.append(("delete", name.rpartition("/")[2]))
            client.delete_blob(name)

        def upload_blob(self, name, content, *, overwrite) -> None:
            told.append(("upload", name.rpartition("/")[2]))
            client.upload_blob(name, content, overwrite=overwrite)

    results._client = Noting()  # type: ignore[assignment] # it has what publishing needs
    results.publish()
    assert told == [
        ("delete", "summary.json"),
        ("delete", "2026-11-18T00.json"),
        ("delete", "part-1.parquet"),
        ("upload", "2026-11-18T00.json"),
        ("upload", "summary.json"),
    ]
