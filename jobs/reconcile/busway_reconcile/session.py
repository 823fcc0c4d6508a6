"""A Spark session for the job, and its settings for few and for many records."""

import os
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

FEW_BYTES = 8_000_000
"""Compressed bytes of raw files, about 100,000 records, below which planning and compiling take the time."""

_MANY_BYTES = 160_000_000
"""Compressed bytes of raw files, about two million messages, below which Java's second compiler does not pay."""

_PARTITION_BYTES = 16_000_000
"""Compressed bytes of raw files, about 200,000 records, for each partition of a shuffle."""

_TASK_BYTES = 1_000_000
"""Compressed bytes of raw files below which one task reads all."""

_START = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote "
    "-XX:MetaspaceSize=300m -Dsun.reflect.inflationThreshold=1000000"
)
"""
Options of Java for a session of a few minutes: it trusts Spark's classes, has room for all of them, and does not
generate a class for each constructor that is called sixteen times.
"""

_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
"""For a run that ends before optimized code has paid for itself."""

QUICK_START = f"{_START} {_FIRST_COMPILER} -XX:+UseSerialGC"
"""The same for few records."""

_STANDARD_ERROR = 2

_FEW_RECORDS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
}
_MANY_RECORDS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "32",
}


def local_session(
    *, memory: str = "4g", cores: str = "2", scratch: Path | None = None, java_options: str = ""
) -> SparkSession:
    """
    Return a session in this process, bound to the loopback address.

    Units:   *memory* as Java writes it; it and *java_options* only apply to the first session of a process.
    """
    # Python workers must be this interpreter: Spark refuses another version.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    options = {
        "spark.master": f"local[{cores}]",
        "spark.app.name": "busway-reconcile",
        "spark.driver.memory": memory,
        # A heap that need not grow is collected seldom.
        "spark.driver.extraJavaOptions": f"-Xms{memory} {java_options}",
        # Whatever a configuration of Hadoop says: an address without a scheme is a folder of this machine.
        "spark.hadoop.fs.defaultFS": "file:///",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark 4 asks Java for its options before each call of PySpark, to name the line in an error.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if scratch is not None:
        options["spark.local.dir"] = str(scratch)
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    if SparkContext._gateway is None:  # noqa: SLF001 - there is no other access to it
        # Java ends a second after this process. A program that reads the verdict from a pipe must not wait for that.
        java = launch_gateway(conf, {"stdout": _STANDARD_ERROR})  # type: ignore[no-untyped-call] # has no types
        SparkContext._ensure_initialized(gateway=java)  # noqa: SLF001 - same reason
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return configure(spark)


def java_options(size: int) -> str:
    """Return the options of Java for raw files of *size* compressed bytes."""
    if size < FEW_BYTES:
        return QUICK_START
    compiler = f" {_FIRST_COMPILER}" if size < _MANY_BYTES else ""
    return f"{_START}{compiler} -XX:+UseParallelGC"


def configure(spark: SparkSession) -> SparkSession:
    """Set on *spark* all options that the job's results depend on, and return it."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # The default differs between Spark 3.5 and 4; no cast of the job may fail.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # A torn file must be reported, never skipped.
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        # Files of several hours are read by one task; without this, it would sort all records by hour.
        "spark.sql.maxConcurrentOutputFileWriters": "100",
        # Thousands of small files are read by few tasks.
        "spark.sql.files.openCostInBytes": "16384",
        # A folder gets its name when all of it is written.
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Most of what is kept are hashes, which do not compress.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # A message has hardly ever two records in one file: a small table before the large one only costs time.
        "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
        # From the long conditions of the job it infers many more, and hardly any that a reader of Parquet could use.
        "spark.sql.constraintPropagation.enabled": "false",
        # Names are ASCII; loading Spark's tables of Unicode takes a second.
        "spark.sql.icu.caseMappings.enabled": "false",
        # The description of a plan for Spark's web page takes longer than a small plan.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.maxPlanStringLength": "10000",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    return spark


def fit(spark: SparkSession, size: int) -> None:
    """Set on *spark* the options for raw files of *size* compressed bytes; no result depends on them."""
    cores = spark.sparkContext.defaultParallelism
    # A task of its own for some kilobytes takes longer than reading them.
    settings = {"spark.sql.files.minPartitionNum": str(cores if size >= _TASK_BYTES else 1)}
    if size < FEW_BYTES:
        settings |= _FEW_RECORDS
    else:
        settings |= {**_MANY_RECORDS, "spark.sql.shuffle.partitions": str(max(size // _PARTITION_BYTES, 2 * cores))}
    for name, value in settings.items():
        spark.conf.set(name, value)
