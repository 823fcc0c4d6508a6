"""A Spark session for the job."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession


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
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("busway-reconcile")
        .config("spark.driver.memory", memory)
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "16")
    )
    if scratch is not None:
        builder = builder.config("spark.local.dir", str(scratch))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return configure(spark)


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
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    return spark
