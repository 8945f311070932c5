"""Tests of the mark on the part of a line that a message of sbatch concerns."""

from __future__ import annotations

import pytest

from jupyter_slurm.domain.magic_line.parser import parse_cell_line
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import OptionError, SubmitRefused
from jupyter_slurm.magics.error_pointer import add_blame, blamed, underline

TABLE = OptionTable.for_command("sbatch")


@pytest.mark.parametrize(
    ("line", "said", "options"),
    [
        ("-p nowhere -N 2", "sbatch: error: invalid partition specified: nowhere", ["partition"]),
        ("-A none -q high", "Invalid account or account/partition combination specified", ["account"]),
        ("--mem 4T -c 3", "Memory specification can not be satisfied", ["mem"]),
        ("-n abc -N 1", 'sbatch: error: Invalid numeric value "abc" for --ntasks.', ["ntasks"]),
        ("-t soon -c 3", "sbatch: error: Invalid --time specification", ["time"]),
        ("-d afterok:7 -c 3", "Job dependency problem", ["dependency"]),
        ("--gpus 9 -J name", "Requested node configuration is not available", ["gpus"]),
        ("--mem-per-cpu 2G -n 5 -N1", "Requested node configuration is not", ["mem-per-cpu", "ntasks", "nodes"]),
        ("-w big1 -c 3", "Requested node configuration is not available", ["nodelist", "cpus-per-task"]),
        ("-J name", "Unable to contact slurm controller", []),
    ],
)
def test_the_option_is_found(line: str, said: str, options: list[str]) -> None:
    parsed = parse_cell_line(line, TABLE, {})
    assert [option.name for option in blamed(said, parsed.parsed.options)] == options


def test_the_words_of_the_option_are_marked_as_typed() -> None:
    line = "-c 2   --partition 'now here'  wait"
    parsed = parse_cell_line(line, TABLE, {"wait": False})
    error = SubmitRefused("sbatch refused the job", stderr="invalid partition specified: now here")
    add_blame(error, "%%sbatch ", line, parsed, "print(1)")
    _, shown, marks = error.message.split("\n")
    assert shown == "    %%sbatch " + line
    assert shown[marks.index("^") : marks.rindex("^") + 1] == "--partition 'now here'"


def test_nothing_is_marked_where_the_environment_is_meant() -> None:
    parsed = parse_cell_line("--gres=gpu:1", TABLE, {})
    said, known = "Requested node configuration is not available", "SBATCH_MEM_PER_NODE=900G is more than any node has"
    error = SubmitRefused("no", stderr=said, hint=known)
    add_blame(error, "%%sbatch ", "--gres=gpu:1", parsed, "")
    assert "^" not in error.message


def test_a_word_of_the_cell_that_is_no_option_is_marked() -> None:
    error, cell = OptionError("sbatch has no option --nods", option="--nods=2"), "#!/bin/sh\n#SBATCH -n 1 --nods=2 -c 1"
    add_blame(error, "%%sbatch ", "-J x", parse_cell_line("-J x", TABLE, {}), cell)
    _, where, shown, marks = error.message.split("\n")
    assert where == "line 2 of the cell:"
    assert shown[marks.index("^") : marks.rindex("^") + 1] == "--nods=2"


def test_bundled_letters_share_their_word() -> None:
    line = "-Hp nowhere"
    parsed = parse_cell_line(line, TABLE, {})
    error = SubmitRefused("no", stderr="invalid partition specified: nowhere")
    add_blame(error, "%%sbatch ", line, parsed, "")
    assert "^" in error.message


def test_a_line_with_odd_characters_stays_aligned() -> None:
    assert underline("a\tb\x1bc", [(4, 5)]) == "    a b c\n        ^"
