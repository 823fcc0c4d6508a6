"""The session of a run on this machine."""

import sys
from pathlib import Path

import pytest
from pyspark import SparkContext


@pytest.mark.skipif(sys.platform != "linux", reason="reads the files of a process below /proc")
@pytest.mark.usefixtures("spark")
def test_java_writes_to_standard_error_only() -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    files = Path(f"/proc/{gateway.proc.pid}/fd")
    assert (files / "1").stat().st_ino == (files / "2").stat().st_ino
    assert (files / "1").stat().st_ino != Path("/proc/self/fd/1").stat().st_ino
