from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from jobs.reconcile.session import local_session

# What costs time here is planning and compiling, not records: the benchmark has the settings that many records want.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FEW_RECORDS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.files.openCostInBytes": "1024",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session(memory="1g", scratch=tmp_path_factory.mktemp("spark"), java_options=JAVA_OPTIONS)
    for name, value in FEW_RECORDS.items():
        session.conf.set(name, value)
    yield session
    session.stop()
