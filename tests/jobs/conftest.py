from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.reconcile.session import local_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session(memory="1g", scratch=tmp_path_factory.mktemp("spark"))
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()
