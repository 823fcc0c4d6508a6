"""The archive of Spark's classes: Java uses one that fits, and ignores any other one without a word."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from busway_reconcile import class_archive
from busway_reconcile.archive_classes import run
from busway_reconcile.class_archive import archive_in_use, archive_to_write

MAIN = "org.apache.spark.launcher.Main"
SHARED = " source: shared objects file (top)"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a program of Java."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    return Path(shutil.copy2(jar, tmp_path / "program.jar"))


@pytest.fixture
def archive(program: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the archive of the program's classes, in a folder whose name has a space."""
    path = program.parent / "a folder" / "classes.jsa"
    path.parent.mkdir()
    monkeypatch.setattr(class_archive, "ARCHIVE", path)
    monkeypatch.setattr(class_archive, "LABEL", path.with_suffix(".json"))
    assert archive_in_use() == ""
    java(program, archive_to_write(path))
    class_archive.LABEL.write_text(json.dumps({"size": path.stat().st_size}))
    return path


def java(program: Path, options: str) -> subprocess.CompletedProcess[str]:
    """Run the program, which prints a command of Spark."""
    command = ["java", *shlex.split(options), "-cp", str(program), MAIN, "org.apache.spark.deploy.SparkSubmit", "x"]
    # Without the version of Scala it looks for a build of Spark.
    environment = {**os.environ, "SPARK_HOME": str(Path(pyspark.__file__).parent), "SPARK_SCALA_VERSION": "2.13"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - Java


def loads_from_archive(program: Path) -> bool:
    return f"{MAIN}{SHARED}" in java(program, f"{archive_in_use()} -Xlog:class+load=info:stdout").stdout


def is_newer(program: Path, _: Path) -> None:
    os.utime(program, (1, 1))


def is_torn(_: Path, archive: Path) -> None:
    replace(archive, archive.read_bytes()[:100_000])


def is_something_else(_: Path, archive: Path) -> None:
    replace(archive, b"." * archive.stat().st_size)


def has_no_label(_: Path, archive: Path) -> None:
    del archive
    class_archive.LABEL.unlink()


def replace(archive: Path, content: bytes) -> None:
    archive.unlink()
    archive.write_bytes(content)


def is_of_another_java(_: Path, archive: Path) -> None:
    content = archive.read_bytes()
    version = re.search(rb"OpenJDK[^\0]*\(17[^\0]*", content)
    if version is None:
        pytest.skip("this Java writes its version in another form")
    replace(archive, content.replace(version[0], version[0].replace(b"(17", b"(16")))


def test_java_starts_from_the_archive(program: Path, archive: Path) -> None:
    del archive
    assert loads_from_archive(program)


@pytest.mark.parametrize("fault", [is_newer, is_torn, is_something_else, has_no_label, is_of_another_java])
def test_an_archive_that_does_not_fit_is_ignored(
    program: Path, archive: Path, fault: Callable[[Path, Path], None]
) -> None:
    usual = java(program, "")
    fault(program, archive)
    done = java(program, archive_in_use())
    assert not loads_from_archive(program)
    assert (done.stdout, done.stderr) == (usual.stdout, usual.stderr)


@pytest.mark.skipif("BUSWAY_SLOW" not in os.environ, reason="takes a minute; make spark runs it")
def test_a_session_starts_from_the_archive_of_its_own_packages(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([]) == 0
    assert class_archive.ARCHIVE.is_file()
    capfd.readouterr()
    assert run([]) == 0
    assert capfd.readouterr().out == "", "an archive that exists is not written again"
    log = tmp_path / "classes.log"
    session = f"local_session(memory='1g', java_options=QUICK_START + ' -Xlog:class+load=info:file={log}')"
    code = f"from busway_reconcile.session import QUICK_START, local_session; {session}.range(9).count()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout == ""
    assert log.read_text().count(SHARED) > 5000
