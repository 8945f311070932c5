"""Tests of JupyterLab beside the Python of an image: what is said when pip fails."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

INSTALL = run_path(str(resources.files("jupyter_slurm.runner").joinpath("session/install.py")))


def refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str) -> str:
    """Return the error of an installation if pip prints these lines and fails."""
    known = INSTALL["_install"].__globals__
    monkeypatch.setitem(known, "subprocess", SimpleNamespace(run=lambda *_, **__: SimpleNamespace(returncode=0)))
    monkeypatch.setattr(known["images"], "run", lambda *_: (1, list(lines)))
    with pytest.raises(INSTALL["RuntimeRefused"]) as refused:
        INSTALL["_install"](str(tmp_path), lambda _: None)
    return str(refused.value)


@pytest.mark.parametrize(
    "lines",
    [
        [
            "Collecting jupyter-server-proxy",
            "ERROR: Could not install packages due to an OSError: No space left on device",
        ],
        ["Downloading networkx-3.4-py3-none-any.whl", "ERROR: Failed building wheel for psutil"],
        [
            "Requirement already satisfied: async-timeout",
            "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io",
        ],
    ],
)
def test_names_of_packages_are_no_failure_of_the_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: list[str]
) -> None:
    assert refusal(monkeypatch, tmp_path, *lines).endswith(f"{lines[-1]}. Read the lines of pip above.")


@pytest.mark.parametrize(
    "line",
    [
        "ERROR: No matching distribution found for jupyterlab",
        "WARNING: Retrying after connection broken by 'ProxyError('Cannot connect to proxy.', OSError())'",
        "ReadTimeoutError(\"HTTPSConnectionPool(host='pypi.org', port=443): Read timed out.\")",
    ],
)
def test_an_index_that_is_not_reached_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    assert "The node cannot reach PyPI" in refusal(monkeypatch, tmp_path, line)
