from collections.abc import Iterator

import pyspark
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


def pytest_configure(config: pytest.Config) -> None:
    if pyspark.__version__.startswith("3."):
        # PySpark 3.5 uses a module that Python 3.12 removed, and leaves sockets to the garbage collector.
        for warning in (
            "distutils Version classes are deprecated:DeprecationWarning",
            "unclosed <socket:ResourceWarning",
        ):
            config.addinivalue_line("filterwarnings", f"ignore:{warning}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = local_session(memory="1g", scratch=tmp_path_factory.mktemp("spark"), java_options=JAVA_OPTIONS)
    for name, value in FEW_RECORDS.items():
        session.conf.set(name, value)
    yield session
    session.stop()
