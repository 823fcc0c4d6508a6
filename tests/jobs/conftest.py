import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pyspark
import pytest
from pyspark.sql import SparkSession

from busway_reconcile.session import QUICK_START, fit, local_session
from tests.jobs.night import Night, night_of

# This uses the app: its packages, and syntax that is newer than the Python of Spark 3.5.
_HAS_APP = sys.version_info >= (3, 12) and find_spec("msgspec") is not None
collect_ignore = [] if _HAS_APP else ["test_losses.py"]


def pytest_configure(config: pytest.Config) -> None:
    if pyspark.__version__.startswith("3."):
        # PySpark 3.5 uses a module that Python 3.12 removed, and leaves sockets to the garbage collector.
        for warning in (
            "The distutils package is deprecated:DeprecationWarning",
            "distutils Version classes are deprecated:DeprecationWarning",
            "unclosed <socket:ResourceWarning",
        ):
            config.addinivalue_line("filterwarnings", f"ignore:{warning}")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # What costs time here is planning and compiling, not records: the benchmark has the settings for many.
    session = local_session(memory="1g", scratch=tmp_path_factory.mktemp("spark"), java_options=QUICK_START)
    fit(session, 0)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Night:
    return night_of(spark, tmp_path_factory.mktemp("night"))
