"""Tests of the guides' lines on the replicas: the commands of each page's last table do what the page says."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from page_blocks import parse_page
from replicas import Replica
from walks.walk import Walk, replace_words, run_walk

from jupyter_slurm.sites.shipped import shipped_names

ROOT = Path(__file__).parents[2]
HEADING = "| In the guide | With jupyter_slurm |\n|---|---|\n"
NAMES = shipped_names()


def walk_of(name: str) -> Walk:
    """Return the walk of a cluster."""
    found = importlib.import_module(f"walks.{name.replace('-', '_')}").WALK
    assert isinstance(found, Walk)
    return found


def rows_of(name: str) -> list[tuple[str, str]]:
    """Return the rows of a page's last table: the line of the guide, and that with jupyter_slurm."""
    table = (ROOT / "docs" / "clusters" / f"{name}.md").read_text("utf-8").partition(HEADING)[2].partition("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table.splitlines()]
    return [(guide.strip(), ours.strip().replace("\\|", "|")) for guide, ours in rows]


def executed_of(name: str) -> str:
    """Return what the executed blocks of a page and the cells of the cluster's notebook have."""
    page = parse_page((ROOT / "docs" / "clusters" / f"{name}.md").read_text("utf-8"))
    notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return "\n".join([*(block.source for block in page.blocks), *cells])


def without_time(line: str) -> str:
    """Return a command without its time limit, which is shorter in a notebook than on the page."""
    return re.sub(" +", " ", re.sub(r" --time \S+", "", line))


def is_executed(ours: str, walk: Walk, elsewhere: str) -> bool:
    """Return whether a command of a row is run, alone or with more options, by the walk, the page or the notebook."""
    commands = [span for span in re.findall(r"`([^`]+)`", ours) if re.match(r"%|jupyter slurm ", span)]
    lines = without_time("\n".join([*(step.command for step in (*walk.steps, *walk.last)), elsewhere]))
    written = [without_time(text) for one in commands for text in (one, replace_words(one, walk.words))]
    return any(re.search(rf"^(\$ )?{re.escape(text)}( |$)", lines, re.MULTILINE) for text in written)


@pytest.mark.timeout(600)
@pytest.mark.sites(*NAMES)
def test_the_lines_of_a_guide_do_on_its_replica_what_the_page_says(replica: Replica) -> None:
    faults = run_walk(walk_of(replica.name), replica)
    assert not faults, "\n\n".join(faults)


@pytest.mark.parametrize("name", NAMES)
def test_each_line_of_a_guide_is_executed_or_the_page_says_why_not(name: str) -> None:
    rows, walk, elsewhere = rows_of(name), walk_of(name), executed_of(name)
    assert len(rows) == walk.rows
    outside = {guide: ours for guide, ours in rows for begin in walk.outside if guide.startswith(begin)}
    assert len(outside) == len(walk.outside)
    assert all(any(said in ours for said in walk.outside.values()) for ours in outside.values())
    left = [row for row in rows if row[0] not in outside and not is_executed(row[1], walk, elsewhere)]
    assert len(left) == len(walk.parsed)
    assert all(guide.startswith(walk.parsed) for guide, _ in left), left
    print(f"{name}: {len(rows)} lines, {len(rows) - len(outside) - len(left)} executed, {len(outside)} outside")


@pytest.mark.parametrize("name", NAMES)
def test_each_step_of_a_walk_is_of_the_page(name: str) -> None:
    page = " ".join(ours for _, ours in rows_of(name))
    assert not [step.command for step in walk_of(name).steps if f"`{step.command}`" not in page]


def test_the_guides_have_126_lines_or_more_and_121_are_executed() -> None:
    walks = [walk_of(name) for name in NAMES]
    assert sum(walk.rows for walk in walks) >= 126
    assert sum(len(walk.outside) for walk in walks) <= 5
    assert sum(walk.rows - len(walk.outside) - len(walk.parsed) for walk in walks) >= 121
