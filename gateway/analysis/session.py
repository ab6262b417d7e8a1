"""A quiet Spark session: made here for the command, the tests and the benchmark. What Java says on
standard error goes into a file, because people should see one line that tells them what to do.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gateway.errors import DdswanError

_LOGGING = Path(__file__).parent / "assets" / "log4j2.properties"


class AnalysisError(DdswanError):
    """Traces cannot be analysed."""


@contextlib.contextmanager
def open_session(
    master: str = "local[*]", *, memory: str = "1g", partitions: int = 8
) -> Iterator[SparkSession]:
    """A session that ends with the block; its log goes with it unless the block failed."""
    handle, name = tempfile.mkstemp(prefix="ddswan-spark-", suffix=".log")
    log = Path(name)
    try:
        with _standard_error_into(handle):
            session = _start(master, memory, partitions)
        try:
            yield session
        finally:
            _end(session)
    except (PySparkException, Py4JError) as error:
        raise AnalysisError(f"Spark failed: {_first_line(error)}; its log is {log}") from error
    except BaseException:
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)


def _start(master: str, memory: str, partitions: int) -> SparkSession:
    options = {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.ignoreCorruptFiles": "true",
        "spark.sql.files.ignoreMissingFiles": "true",  # writers remove their oldest files
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        # Traces hold long numbers of nanoseconds; an overflow is a wrong clock, not an error.
        "spark.sql.ansi.enabled": "false",
    }
    if master.startswith("local"):
        options["spark.driver.host"] = options["spark.driver.bindAddress"] = "127.0.0.1"
    builder = SparkSession.builder.appName("ddswan analyze").master(master)
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _end(session: SparkSession) -> None:
    """Stops Spark and its Java process, which would otherwise live as long as this one."""
    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    java = getattr(gateway, "proc", None)
    if java is not None:
        java.stdin.close()
        java.wait(timeout=30)
    # The next session of this process needs a Java of its own.
    type(session.sparkContext)._gateway = None
    type(session.sparkContext)._jvm = None


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def _standard_error_into(handle: int) -> Iterator[None]:
    """The Java process inherits this as its standard error for life."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        os.dup2(handle, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(handle)
