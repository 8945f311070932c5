"""Tests of a shell's operators in magic lines: refused with a way that works, and arguments where they are quoted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from jupyter_slurm.domain.magic_line.parser import command_arguments, parse_cell_line, parse_line_magic
from jupyter_slurm.domain.magic_line.shell_operators import without_input
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.scripts.sweep_parameters import Sweep
from jupyter_slurm.errors import UsageError

NAMES: dict[str, object] = {"job": 12, "sign": "|", "path": "a b"}
WORDS = {"on": True, "wait": False}


def error_of(parse: Callable[[], object]) -> UsageError:
    with pytest.raises(UsageError) as raised:
        parse()
    assert "is an operator of the shell" in raised.value.message
    return raised.value


@pytest.mark.parametrize(
    ("line", "sign", "instead"),
    [
        ("-N -l | head -n 5", "|", "%slurm sh sinfo -N -l | head -n 5"),
        ("-N -l |head", "|", "%slurm sh sinfo -N -l |head"),
        ("-o '%P %t' | sort", "|", "%slurm sh sinfo -o '%P %t' | sort"),
        ("-p {path} > out", ">", "%slurm sh sinfo -p 'a b' > out"),
        ("-h >>out", ">>", "%slurm sh sinfo -h >>out"),
        ("-h 2>/dev/null", "2>", "%slurm sh sinfo -h 2>/dev/null"),
        ("< list", "<", "%slurm sh sinfo < list"),
        ("-s && %squeue --me", "&&", "%slurm sh sinfo -s && squeue --me"),
        ("-s || true", "||", "%slurm sh sinfo -s || true"),
        ("-s; date", ";", "%slurm sh sinfo -s; date"),
        ("-s ; date", ";", "%slurm sh sinfo -s ; date"),
        ("-j {job}| wc -l", "|", "%slurm sh sinfo -j 12| wc -l"),
        ("-o=| -N", "|", "Quote the value: -o='|'."),
        ("-s &", "&", "Leave it out."),
        ("-s;", ";", "Leave it out."),
    ],
)
def test_a_command_of_slurm_is_not_run_with_an_operator(line: str, sign: str, instead: str) -> None:
    table = OptionTable.for_command("sinfo")
    error = error_of(lambda: command_arguments(line, table, NAMES.__getitem__))
    assert instead in str(error.hint)
    assert f"'{sign}'." in str(error.hint)
    start, end = error.details["span"]
    assert line[start:end] == sign


@pytest.mark.parametrize("typed", ["'|'", '"|"', "\\|", "'>'", "'a;'", "a\\;", "%i|%j", "{sign}", "'<b>'", "a>b"])
def test_a_quoted_operator_is_an_argument(typed: str) -> None:
    table = OptionTable.for_command("squeue")
    words = command_arguments(f"-o {typed}", table, NAMES.__getitem__)
    assert words == ["-o", "|" if typed == "{sign}" else typed.replace("\\", "").strip("'\"")]
    assert parse_line_magic(f"echo {typed}", OptionTable.for_command("srun"), WORDS, NAMES.__getitem__).rest[1:]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("on=gpu -n 2 echo hi | wc -l", "`%srun on=gpu -n 2 sh -c 'echo hi | wc -l'`"),
        ("cat {path} > out", "`%srun sh -c 'cat '\"'\"'a b'\"'\"' > out'`"),
        ("make && make test", "`%srun sh -c 'make && make test'`"),
        ("-n 1 | wc", "Write a command in front of it."),
        ("cat x >{path}", "`%srun sh -c 'cat x >'\"'\"'a b'\"'\"''`"),
        ("echo {job}; hostname", "`%srun sh -c 'echo 12; hostname'`"),
    ],
)
def test_a_step_runs_operators_in_a_shell_of_its_node(line: str, instead: str) -> None:
    table = OptionTable.for_command("srun")
    assert instead in str(error_of(lambda: parse_line_magic(line, table, WORDS, NAMES.__getitem__)).hint)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("-p gpu job.sh > log", "-o FILE"),
        ("job.sh && %sbatch next.sh", "`after=JOB`"),
        ("<< EOF", "`< FILE`"),
    ],
)
def test_a_submitted_file_gets_no_operator(line: str, instead: str) -> None:
    table = OptionTable.for_command("sbatch")
    assert instead in str(error_of(lambda: parse_line_magic(line, table, WORDS)).hint)


@pytest.mark.parametrize("line", ["-p gpu | tee log", "wait -- a | b", "-p gpu; wait"])
def test_a_line_above_a_cell_gets_no_operator(line: str) -> None:
    error_of(lambda: parse_cell_line(line, OptionTable.for_command("sbatch"), WORDS))
    quoted = parse_cell_line("wait -- a '|' b", OptionTable.for_command("sbatch"), WORDS)
    assert quoted.args == ["a", "|", "b"]


@pytest.mark.parametrize(
    ("line", "rest", "name"),
    [
        ("< job.sh", "", "job.sh"),
        ("-p gpu < job.sh", "-p gpu", "job.sh"),
        ("<job.sh -p gpu", "-p gpu", "job.sh"),
        ("-p gpu <'a b.sh'", "-p gpu", "a b.sh"),
        ("< {path} wait", "wait", "a b"),
        ("-p gpu job.sh '<' x", "-p gpu job.sh '<' x", None),
    ],
)
def test_a_script_is_read_from_a_file_as_in_a_shell(line: str, rest: str, name: str | None) -> None:
    left, found = without_input(line, NAMES.__getitem__)
    assert (left.strip(), found) == (rest, name)
    assert len(left) == len(line), "the marks of an error stay where they are"


@pytest.mark.parametrize(("line", "said"), [("-p gpu <", "No file follows"), ("< a < b", "two scripts")])
def test_an_input_that_is_wrong(line: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        without_input(line)


PLACEHOLDERS = [
    ("-A <account> -p gpu", "<account>"),
    ("-p gpu --account=<project>", "<project>"),
    ("-p gpu -A <your-account>", "<your-account>"),
    ("-p gpu -A <your account> -n 1", "<your account>"),
    ("-n <N>", "<N>"),
    ("as=<name>", "<name>"),
]


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun", "squeue"])
@pytest.mark.parametrize(("line", "name"), PLACEHOLDERS)
def test_the_placeholder_of_a_guide_is_named(line: str, name: str, command: str) -> None:
    table, words = OptionTable.for_command(command), {"as": True}
    for parse in (
        lambda: parse_cell_line(line, table, words),
        lambda: parse_line_magic(line, table, words),
        lambda: command_arguments(line, table),
        lambda: parse_line_magic(without_input(f"{line} job.sh")[0], table, words),
    ):
        with pytest.raises(UsageError, match="has the placeholder") as caught:
            parse()
        assert f"Replace {name} with your own value." in str(caught.value.hint)
        start, end = caught.value.details["span"]
        assert line[start:end] == name


@pytest.mark.parametrize(
    "line",
    [
        *("cat <in.txt >out", "sort < in.txt", "cat <in >out", "cat <in.txt", "<<EOF", "cat <in.txt a >b"),
        *("sort <in 2> err", "sort <in.txt> out"),
    ],
)
def test_a_redirection_is_no_placeholder(line: str) -> None:
    hint = str(error_of(lambda: parse_line_magic(line, OptionTable.for_command("srun"), WORDS)).hint)
    assert line.startswith("<<") or f"sh -c '{line}'" in hint
    without_input("<job.sh 2> err")  # the parser names the second one


@pytest.mark.parametrize("word", ["--eos=<s>", "--pad_token=<pad>", "--template=<|im_start|>", "name=<b>"])
def test_a_program_may_take_what_looks_like_a_placeholder(word: str) -> None:
    srun, sbatch = OptionTable.for_command("srun"), OptionTable.for_command("sbatch")
    assert parse_line_magic(f"-n 4 python train.py {word}", srun, WORDS).rest[-1] == word
    assert parse_line_magic(f"-n 4 -- python {word}", srun, WORDS).rest == ["python", word]
    line, name = without_input(f"-p gpu job.sh {word}")
    assert (parse_line_magic(line, sbatch, WORDS).rest, name) == (["job.sh", word], None)
    assert parse_cell_line(f"wait -- {word}", sbatch, WORDS).args == [word]


def test_a_quoted_placeholder_is_an_argument() -> None:
    table = OptionTable.for_command("srun")
    assert parse_line_magic("echo '<b>' a<b> x=1<b>", table, WORDS).rest == ["echo", "<b>", "a<b>", "x=1<b>"]


@pytest.mark.parametrize(
    "line", ["sweep=lr:1e-4,1e-3; gamma:0.9,1", "wait sweep=lr:1 ;gamma:2", "sweep=lr:1 ; gamma:2 wait"]
)
def test_a_sweep_with_a_blank_loses_no_parameter(line: str) -> None:
    table, words = OptionTable.for_command("sbatch"), {"sweep": True, "wait": False}
    for parse in (parse_cell_line, parse_line_magic):
        hint = str(error_of(partial(parse, line, table, words)).hint)
        assert hint == "Write the value of sweep= without blanks, or in quotes: sweep='a:1,2; b:3,4'."
    quoted = parse_cell_line("sweep='a:1,2; b:3,4'", table, words).keywords["sweep"]
    assert len(Sweep.typed(str(quoted), zipped=False).rows) == 4
    assert "Leave it out." in str(error_of(lambda: parse_cell_line("sweep=a:1,2;", table, words)).hint)


def test_variables_of_the_node_are_found_except_in_single_quotes() -> None:
    line = (
        """a=$SLURM_JOB_ID '$SLURM_JOB_ID' "${SLURM_NNODES} x" $$SLURM_A \\$SLURM_B $HOME_SLURM $CUDA_VISIBLE_DEVICES"""
    )
    found = [(token.text, token.node_variables) for token in tokenize(line) if token.node_variables]
    assert found == [
        ("a=$SLURM_JOB_ID", (2,)),
        ("${SLURM_NNODES} x", (0,)),
        ("$CUDA_VISIBLE_DEVICES", (0,)),
    ]
    parsed = parse_line_magic("-n 1 echo x$SLURM_A'$SLURM_B'$SLURM_C", OptionTable.for_command("srun"), WORDS)
    assert parsed.node_variables == [(1, 1), (1, 17)]
