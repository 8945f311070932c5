"""Tests of the programs that make environments: whether a failure is one of the network."""

from __future__ import annotations

from importlib import resources
from runpy import run_path

import pytest

TOOLS = run_path(str(resources.files("jupyter_slurm.runner").joinpath("environment/tools.py")))


def failure(monkeypatch: pytest.MonkeyPatch, output: str) -> type[Exception]:
    """Return the class of the error if pip prints an output and fails."""
    make = TOOLS["make"]
    monkeypatch.setattr(make.__globals__["images"], "run", lambda *_: (1, [*map(str.strip, output.splitlines())]))
    with pytest.raises(TOOLS["RuntimeRefused"]) as refused:
        make("pip", {"kind": "requirements", "files": {"requirements.txt": "--index-url https://x"}}, "made", "files")
    return refused.type


@pytest.mark.parametrize(
    "output",
    [
        "Collecting networkx\n  Downloading networkx-3.4-py3-none-any.whl (1.7 MB)\nERROR: No matching distribution",
        "Using cached async_timeout-5.0-py3-none-any.whl\nerror: subprocess-exited-with-error",
        "Requirement already satisfied: dnspython>=2\nERROR: Could not build wheels for pyproxy-tools",
        "error: Because networkx==9 and async-timeout==1 conflict with dnspython, no solution was found",
        "Collecting max retries @ https://x/connection refused\nERROR: conflict",
    ],
)
def test_names_of_packages_are_no_failure_of_the_network(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    assert failure(monkeypatch, output) is TOOLS["RuntimeRefused"]


@pytest.mark.parametrize(
    "output",
    [
        "WARNING: Retrying after connection broken by 'NewConnectionError('x: Failed to establish a new connection')'",
        "ReadTimeoutError(\"HTTPSConnectionPool(host='pypi.org', port=443): Read timed out.\")",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "error: Failed to fetch: `https://pypi.org/simple/a/`\n  Caused by: dns error: failed to lookup address",
        "  Caused by: tcp connect error: Connection refused (os error 111)",
        "critical libmamba Download error (6) Could not resolve host: conda.anaconda.org",
        "CondaHTTPError: HTTP 000 CONNECTION FAILED for url <https://conda.anaconda.org/x>",
        "OSError: [Errno 101] Network is unreachable",
        "curl: (28) Failed to connect to conda.anaconda.org port 443",
    ],
)
def test_an_index_that_is_not_reached_is_noticed(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    assert failure(monkeypatch, output) is TOOLS["IndexUnreached"]
