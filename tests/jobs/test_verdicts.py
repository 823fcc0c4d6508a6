from datetime import timedelta
from pathlib import Path

import pytest

from jobs.reconcile.reconciliation import reconcile
from jobs.reconcile.settings import Window
from tests.jobs.journals import KINDS, START, TASK, planted


def verdicts(result):
    import duckdb

    rows = []
    for table in ("findings", "explained"):
        rows += duckdb.sql(
            f"select task, src_seq, verdict from read_parquet('{result.tables[table][5:]}/*.parquet')"
        ).fetchall()
    return rows


@pytest.mark.parametrize("taps", [True, False])
def test_one_of_each(spark, tmp_path: Path, taps: bool):
    kinds = [*KINDS, *["delivered"] * 30] * 3
    journals, plan = planted(kinds, taps=taps)
    journals.write(tmp_path / "journal")
    window = Window(START, START + timedelta(hours=4))
    result = reconcile(
        spark, str(tmp_path / "journal"), str(tmp_path / "out"), window=window, now=START + timedelta(days=1)
    )
    found = {seq: verdict for task, seq, verdict in verdicts(result) if task == TASK}
    expected = {seq: verdict for seq, verdict in plan.items() if verdict != "delivered"}
    print(
        result.summary.problems,
        {k: (found.get(k), expected.get(k)) for k in {*found, *expected} if found.get(k) != expected.get(k)},
    )
    assert found == expected
