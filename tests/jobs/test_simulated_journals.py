"""The nightly job and its twin say the same about the journals of simulated histories."""

import itertools

import pytest
from pyspark.sql import SparkSession

from tests.simulation.history import Plan, run
from tests.simulation.job_judgement import judged_by_job
from tests.simulation.judgement import SHORT_SECONDS, Evidence, disagreements
from tests.simulation.kept import KEPT

pytestmark = pytest.mark.slow

_HISTORIES = 24
_MOST_DOUBTED = 4


def proofs() -> list[Evidence]:
    found: list[Evidence] = []
    for number, plan in enumerate(itertools.chain(itertools.starmap(Plan, KEPT), map(Plan, itertools.count()))):
        history = run(plan, number)
        if history.evidence is not None and history.seconds < SHORT_SECONDS:
            found.append(history.evidence)
        if len(found) == _HISTORIES:
            break
    return found


def test_job_names_exactly_what_a_history_has_lost(spark: SparkSession) -> None:
    histories = proofs()
    said = judged_by_job(spark, histories)
    assert len(said) >= _HISTORIES - _MOST_DOUBTED
    judged = [history for history in histories if history.number in said]
    assert any(history.lost for history in judged)
    assert [text for history in judged for text in disagreements(history, said[history.number])] == []
