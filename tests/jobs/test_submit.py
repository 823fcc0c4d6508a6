"""`spark-submit` with the zip alone: on a cluster of two workers, and with Delta tables."""

from datetime import timedelta
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import duckdb
import pyspark
import pytest

from tests.jobs.journals import PLAIN_KINDS, START, planted
from tests.jobs.submitting import Submitted, results, running_cluster, submit

pytestmark = pytest.mark.slow

END = START + timedelta(hours=3)
RUN = f"{START:%Y-%m-%dT%H}--{END:%Y-%m-%dT%H}"
WINDOW = ["--start", f"{START:%Y-%m-%dT%H}", "--end", f"{END:%Y-%m-%dT%H}", "--grace-minutes", "60"]
NOW = ["--now", (START + timedelta(days=1)).isoformat()]
FEW_RECORDS = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.sql.codegen.wholeStage=false"]
# The version of Delta for each version of Spark: a release of Delta runs on these versions only.
DELTA = {
    "3.5": "delta-spark_2.12:3.3.3",
    "4.0": "delta-spark_4.0_2.13:4.4.0",
    "4.1": "delta-spark_4.1_2.13:4.4.0",
    "4.2": "delta-spark_4.2_2.13:4.4.0",
}
CENTRAL = "https://repo1.maven.org/maven2/io/delta"
EXTENSION = ["--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"]
CATALOG = ["--conf", "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("journal")
    journals, _ = planted([*PLAIN_KINDS, *["delivered"] * 30], taps=True, hours=3)
    journals.write(folder)
    return folder


def job(journal: Path, out: Path, master: str, *more: str, delta: Path | None = None) -> Submitted:
    where = ["--journal", str(journal), "--out", str(out), *WINDOW, *NOW]
    where += [] if delta is None else ["--delta", str(delta)]
    return submit(out.parent / "submitted", ["--master", master, *FEW_RECORDS, *more], where)


@pytest.fixture(scope="module")
def local(journal: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of the job without a cluster."""
    out = tmp_path_factory.mktemp("local") / "out"
    done = job(journal, out, "local[2]")
    assert done.code == 1, done.log
    return out


def test_a_cluster_of_two_workers_gives_the_verdicts_of_one_process(journal: Path, local: Path, tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster", workers=2) as cluster:
        done = job(journal, tmp_path / "out", cluster.master, "--executor-memory", "512m", "--executor-cores", "1")
    assert done.code == 1, done.log
    assert [len(list(worker.glob("app-*/*/stderr"))) for worker in cluster.workers] == [1, 1]
    one, other = results(local), results(tmp_path / "out")
    assert one == other
    assert len(one[1]) > 5
    assert (tmp_path / "out" / "runs" / RUN / "report.html").is_file()


def test_delta_tables_have_the_rows_of_the_run_once(journal: Path, local: Path, tmp_path: Path) -> None:
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version not in DELTA:
        pytest.skip(f"Delta has no release for Spark {version}")
    name, _, number = DELTA[version].partition(":")
    try:
        urlopen(f"{CENTRAL}/{name}/{number}/{name}-{number}.pom", timeout=20).close()  # noqa: S310 - an https address
    except URLError as error:
        pytest.skip(f"Maven Central cannot be reached: {error.reason}")
    packages = ["--packages", f"io.delta:{DELTA[version]}", *EXTENSION, *CATALOG]
    tables = tmp_path / "tables"
    for _ in range(2):
        done = job(journal, tmp_path / "out", "local[2]", *packages, delta=tables)
        assert done.code == 1, done.log
    summary, rows = results(local)
    assert current_rows(tables / "findings", "src_seq", "verdict", "copies") == rows
    assert current_rows(tables / "runs", "exit_code", "messages") == [
        (1, sum(summary.counts.values()) - summary.counts["orphan"])
    ]


def current_rows(table: Path, *columns: str) -> list[tuple[object, ...]]:
    """Return *columns* of the rows of a Delta *table*, by the files that its log added and did not remove."""
    log = sorted((table / "_delta_log").glob("*.json"))
    entries = duckdb.execute(
        "SELECT add.path, remove.path FROM read_json(?, columns = {add: 'STRUCT(path VARCHAR)', "
        "remove: 'STRUCT(path VARCHAR)'}, format = 'newline_delimited')",
        [[str(path) for path in log]],
    ).fetchall()
    removed = {gone for _, gone in entries}
    files = [str(table / path) for path, _ in entries if path is not None and path not in removed]
    return sorted(duckdb.read_parquet(files).select(*columns).fetchall())


def test_a_session_without_delta_says_what_to_add(journal: Path, tmp_path: Path) -> None:
    done = job(journal, tmp_path / "out", "local[1]", delta=tmp_path / "tables")
    assert done.code == 2
    assert "start the job with spark-submit --packages" in done.output
    assert not (tmp_path / "out").exists()
