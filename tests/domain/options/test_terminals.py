"""Tests of steps that ask for a terminal: the first interactive lines of the guides lead to a shell."""

from __future__ import annotations

import shlex

import pytest

from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.options.step_options import check_terminal, needs_terminal, step_options, without_shell_code
from jupyter_slurm.errors import OptionError

TABLE = OptionTable.for_command("srun")


@pytest.mark.parametrize(
    ("line", "allocation"),
    [
        ("--pty -u bash -i", "%salloc as=node"),
        ("--gres=gpu:1 --pty -u bash -i", "%salloc --gres=gpu:1 as=node"),
        ("-p arandu -t 10 --pty bash -l", "%salloc -p arandu -t 10 as=node"),
        ("--mem 64G --label bash", "%salloc --mem 64G as=node"),
        ("-n 2 /bin/zsh -il", "%salloc -n 2 as=node"),
        ("-J 'a b' sh", "%salloc -J 'a b' as=node"),
    ],
)
def test_a_terminal_is_opened_in_an_allocation_with_the_same_options(line: str, allocation: str) -> None:
    split = TABLE.split(shlex.split(line))
    with pytest.raises(OptionError) as raised:
        check_terminal(split)
    assert str(raised.value.hint).startswith(f"Use `{allocation}`, then `jupyter slurm shell node` in a terminal")
    assert "`Open Terminal` in JupyterLab" in str(raised.value.hint)
    with pytest.raises(OptionError) as raised:
        check_terminal(split, "gpu", "arandu")
    assert str(raised.value.hint).startswith("Use `jupyter slurm shell gpu --cluster arandu` in a terminal")


def test_the_keywords_of_an_allocation_are_kept() -> None:
    with pytest.raises(OptionError, match="a cell has no terminal") as raised:
        check_terminal(TABLE.split(["--pty", "bash"]), keywords=["env=a b"])
    assert "`%salloc 'env=a b' as=node`" in str(raised.value.hint)


@pytest.mark.parametrize("line", ["bash x.sh", "sh -c date", "--input=x.sh bash", "hostname", "", "bash -x"])
def test_other_commands_need_no_terminal(line: str) -> None:
    assert not needs_terminal(TABLE.split(shlex.split(line)))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["bash", "-c", "echo $SLURM_PROCID", "$SLURM_NODEID"], [3]),
        (["timeout", "5", "/bin/sh", "-lc", "$SLURM_PROCID"], []),
        (["bash", "run.sh", "$SLURM_PROCID"], [2]),
        (["python", "-c", "$SLURM_PROCID"], [2]),
        (["$SLURM_JOB_NAME", "-c", "$SLURM_PROCID"], [0, 2]),
    ],
)
def test_the_code_of_a_shell_is_left_to_that_shell(words: list[str], kept: list[int]) -> None:
    places = [(number, word.index("$")) for number, word in enumerate(words) if "$" in word]
    assert [number for number, _ in without_shell_code(words, places)] == kept


@pytest.mark.parametrize("option", ["--pty", "--interactive"])
def test_a_job_has_no_terminal_either(option: str) -> None:
    with pytest.raises(OptionError) as raised:
        OptionTable.for_command("sbatch").split([option])
    assert "`jupyter slurm shell node`" in str(raised.value.hint)


def test_the_agent_refuses_a_terminal_with_the_same_hint() -> None:
    with pytest.raises(OptionError, match="--pty cannot be used") as raised:
        step_options(TABLE, ["--gres=gpu:1", "--pty"])
    assert "`%salloc --gres=gpu:1 as=node`" in str(raised.value.hint)
