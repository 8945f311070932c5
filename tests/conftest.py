"""What all tests share: real clusters, ordinary users, and waiting for conditions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster


def _wait_for(condition: Callable[[], Any], what: str, timeout: float = 60.0, interval: float = 0.05) -> Any:
    """Return the first true value of ``condition``; fail with ``what`` when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout:g} s: {what} (last answer: {value!r})")
        time.sleep(interval)


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., Any]:
    """``wait_for(condition, what, timeout=60)``: tests wait for conditions, never for seconds."""
    return _wait_for


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """The default cluster (Arandu) without accounting, one for all tests of the session."""
    with EmbeddedCluster(directory=Path(f"/tmp/jsl-{tmp_path_factory.getbasetemp().name}")) as running:
        yield running
