"""One Spark session for all tests of the analysis: starting Java takes longer than any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from gateway.analysis.session import open_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with open_session("local[2]", memory="1g", partitions=2) as session:
        yield session
