"""One Spark session for all tests of the analysis: starting Java takes longer than any of them.
It ends with them: what comes after has better uses for its memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gateway.analysis.session import open_session
from tests.analysis.command import QUICK_JAVA


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        for name, value in QUICK_JAVA.items():
            environment.setenv(name, value)
        opening = open_session("local[2]", memory="1g", partitions=2)
        session = opening.__enter__()
    yield session
    opening.__exit__(None, None, None)
