from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.reconcile.session import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session(memory="1g", scratch=tmp_path_factory.mktemp("spark"))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # A few hundred records are read in the time that compiling a plan takes; the benchmark runs compiled plans.
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    yield session
    session.stop()
