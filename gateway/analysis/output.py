"""Where results go: a local directory or any place Spark can write to. Called by conclude.py; what
is written is decided there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gateway.analysis.session import AnalysisError


class Output:
    """The directory named by --out."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self.place = place
        self._spark = spark
        scheme, colon, _ = place.partition("://")
        self._local = None if colon and scheme != "file" else Path(place.removeprefix("file://"))

    def prepare(self) -> None:
        if self._local is None:
            return
        try:
            self._local.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AnalysisError(
                f"cannot write into {self._local}: {error.strerror}; choose another --out"
            ) from error

    def at(self, name: str) -> str:
        return f"{self.place.rstrip('/')}/{name}"

    def read(self, name: str) -> DataFrame:
        return self._spark.read.parquet(self.at(name))

    def write_table(self, name: str, table: DataFrame) -> None:
        table.write.mode("overwrite").parquet(self.at(name))

    def write_rows(self, name: str, rows: Sequence[dict[str, Any]], schema: str) -> None:
        # Made in Java: a list would need Python on the executors, which takes longer to start.
        values = F.from_json(F.lit(json.dumps(rows)), f"array<struct<{schema}>>")
        self.write_table(name, self._spark.range(1, numPartitions=1).select(F.inline(values)))

    def write_text(self, name: str, text: str) -> None:
        """Whole or not at all, as far as the place can do that."""
        if self._local is not None:
            hidden = self._local / f".{name}.tmp"
            hidden.write_text(text, encoding="utf-8")
            os.replace(hidden, self._local / name)
            return
        jvm: Any = self._spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(self.at(name))
        system = path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration())
        stream = system.create(path, True)
        stream.write(bytearray(text.encode()))
        stream.close()
