"""Tests of the help of magics: complete, and in words that all readers know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from words import find_refused

from jupyter_slurm.client.environments.environment import KEYWORDS as ENVIRONMENT
from jupyter_slurm.client.images.image import KEYWORDS as IMAGE
from jupyter_slurm.client.sessions.launch import WORDS as LAUNCH
from jupyter_slurm.magics import remote, salloc, sbatch, srun
from jupyter_slurm.magics.help import help_for, keyword_help, subcommand_help
from jupyter_slurm.magics.slurm import USAGES


@pytest.mark.parametrize("magic", ["sbatch", "salloc", "srun", "remote", "slurm", "squeue", "sacct", "scontrol"])
def test_help_has_plain_words_and_lines_that_fit(magic: str) -> None:
    text = help_for(magic)
    assert list(find_refused(text)) == []
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize(
    ("magic", "keywords"),
    [
        ("sbatch", sbatch.CELL_KEYWORDS),
        ("salloc", salloc.KEYWORDS),
        ("srun", srun.CELL_KEYWORDS),
        ("remote", remote.CELL_KEYWORDS),
        ("slurm launch", LAUNCH),
        ("slurm image", IMAGE),
        ("slurm env", ENVIRONMENT),
    ],
)
def test_each_keyword_is_explained(magic: str, keywords: Iterable[str]) -> None:
    text = help_for(magic.partition(" ")[0])
    known = keyword_help(magic)
    for keyword in keywords:
        assert known.get(keyword), keyword
        assert f"\n    {keyword}" in text, keyword


def test_each_subcommand_of_slurm_is_listed() -> None:
    text = help_for("slurm").partition("\nKeywords")[0]
    assert [name for name in USAGES if f"%slurm {name}" not in text] == []


def test_each_subcommand_of_slurm_has_help() -> None:
    for name, usage in USAGES.items():
        text = subcommand_help(name, usage)
        assert text.startswith(usage)
        assert f"%slurm {name}" in text.removeprefix(usage), name


@pytest.mark.slurm
@pytest.mark.by_day
def test_a_question_mark_after_a_subcommand_shows_its_help(kernel: Any) -> None:
    for code in ("%slurm sh?", "%slurm sh --help", "%%slurm sh ?"):
        assert "Run a command on the login node" in kernel.ok(code).result["text/plain"], code


def test_the_place_of_a_python_cell_is_named_for_both_cases() -> None:
    text = " ".join(help_for("sbatch").split())
    assert "On a login node, a Python cell runs with the Python of this notebook" in text
    assert "Over SSH, only the text of the cell is sent" in text
