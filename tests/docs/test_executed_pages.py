"""Tests of the documentation's executed pages: each block does what the page says, on a real cluster.

With JUPYTER_SLURM_STORE_OUTPUTS=1 (``make docs-outputs``) the outputs are stored for the next build of the pages.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from page_blocks import Page, read_pages
from page_outputs import Stored, load_outputs, save_outputs
from pages import BlockRun, Surroundings, at_laptop_of, on_login_node, run_page
from replicas import Replica

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import MissingPackages

DOCS = Path(__file__).parents[2] / "docs"
OUTPUTS = DOCS / "outputs"
PAGES = read_pages(DOCS)


def _measure_walk(page: Page, runs: list[BlockRun]) -> dict[str, object]:
    """Return the words and the seconds of commands up to the first job of a cell, or of the whole page without one."""
    first = next((run for run in runs if run.block.source.startswith("%%sbatch")), runs[-1])
    lines = (DOCS / f"{page.name}.md").read_text("utf-8").splitlines()
    end = first.block.line + len(first.block.source.splitlines())
    return {"page": page.name, "seconds": first.ended, "words": len(" ".join(lines[:end]).split())}


def _parameter(page: Page) -> object:
    assert page.run is not None
    marks = [pytest.mark.slurm]
    if page.run.cluster != "embedded":
        group = pytest.mark.xdist_group(f"replica-{page.run.cluster}")
        marks += [pytest.mark.root, pytest.mark.remote, group]
    return pytest.param(page, id=page.name, marks=marks)


@pytest.fixture
def place(
    page: Page, short_path: Path, request: pytest.FixtureRequest, unavailable: Callable[[str], None]
) -> Iterator[Surroundings]:
    """Provide the computer that the page is typed on: with a cluster of its own, so that job numbers begin at 1."""
    assert page.run is not None
    short_path.chmod(0o711)  # munge refuses a socket that not every user can reach
    with contextlib.ExitStack() as stack:
        if page.run.cluster == "embedded":
            cluster = EmbeddedCluster(directory=short_path / "c")
            try:
                cluster.start(until=os.getpid())
            except MissingPackages as error:
                unavailable(str(error))
            stack.callback(cluster.stop)
            environments = _ray(request) if "env=ray" in page.typed else {}
            yield stack.enter_context(on_login_node(cluster, short_path / "h", environments))
        else:
            replicas: Callable[[str], Replica] = request.getfixturevalue("replicas")
            yield stack.enter_context(at_laptop_of(replicas(page.run.cluster), short_path / "h", page))


def _ray(request: pytest.FixtureRequest) -> dict[str, object]:
    """Return the environment ``ray`` of the user: the Python of the nodes, with Ray."""
    packages: Path = request.getfixturevalue("ray_packages")
    return {"ray": {"python": "/usr/bin/python3", "variables": {"PYTHONPATH": str(packages)}}}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [_parameter(page) for page in PAGES])
def test_each_block_of_a_page_does_what_it_says(
    page: Page, place: Surroundings, record_property: Callable[[str, object], None]
) -> None:
    runs = run_page(page, place)
    record_property("walk", _measure_walk(page, runs))
    faults = [f"{page.name}.md:{run.block.line}: {run.fault}" for run in runs if run.fault]
    assert not faults, "\n".join(faults)
    if os.environ.get("JUPYTER_SLURM_STORE_OUTPUTS"):
        save_outputs(OUTPUTS, page.name, [Stored(run.block.digest, tuple(run.outputs)) for run in runs])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_outputs_of_a_page_are_those_of_its_text(page: Page) -> None:
    stored = [block.digest for block in load_outputs(OUTPUTS, page.name)]
    assert stored == [block.digest for block in page.blocks], "changed since its last run: make docs-outputs"
