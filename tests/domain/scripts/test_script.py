"""Cells and scripts: the kind of a cell, its header, and the script that runs a Python cell."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from jupyter_slurm.domain.options.option_parser import HET, OptionTable
from jupyter_slurm.domain.scripts.header_checks import check_equals_signs, header_warnings
from jupyter_slurm.domain.scripts.script import (
    MAX_SCRIPT_BYTES,
    RUNNER_NAMES,
    classify,
    header_options,
    ignored_headers,
    job_script,
    quote_argv,
)
from jupyter_slurm.errors import CellError

WORDS = st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1)


@pytest.mark.parametrize(
    ("cell", "kind"),
    [
        ("#!/bin/bash\nhostname | tee x\n", "script"),
        ("#!/usr/bin/env python3\nprint(", "script"),
        ("#!/bin/sh", "script"),
        ("#! /bin/sh -e\n\n", "script"),
        ("x = 1\nx", "python"),
        ("#SBATCH --gpus 1\n# comment\n\nprint('hello')\n", "python"),
        ("await work()\nasync for x in y: pass\n", "python"),
        ("x = 1\r\nif x:\r\n    y = 2\r\n", "python"),
        ("\n\n   # a comment\n\nx = 1", "python"),
        ("'\\d'; 1 is 1", "python"),  # the job shows warnings
        ("text = '''\n#!/bin/sh\n'''", "python"),
        ("# only a comment", "python"),
    ],
)
def test_what_a_cell_is(cell: str, kind: str) -> None:
    assert classify(cell) == kind


@pytest.mark.parametrize("cell", ["!ls", "x = 1\n%time x", "print?", "%%bash\nls -l", "files = !ls\nawait f(files)"])
def test_a_cell_of_ipython_is_python_once_it_is_transformed(cell: str) -> None:
    assert classify(cell, TransformerManager().transform_cell) == "python"
    with pytest.raises(CellError):
        classify(cell)
    with pytest.raises(CellError, match="neither a script nor Python"):
        classify(
            cell + "\necho hello" if not cell.startswith("%%") else "echo hello", TransformerManager().transform_cell
        )


@pytest.mark.parametrize(
    ("cell", "message", "hint"),
    [
        ("", "The cell is empty.", "Write a script that begins with #!/bin/bash, or Python."),
        (" \n\t\n", "The cell is empty.", None),
        ("echo hello\n", "(line 1: 'echo hello')", "Add #!/bin/bash as its first line if it is a shell script."),
        ("module load cuda\npython train.py", "neither a script nor Python", None),
        ("x = 1\ndef f(:\n    pass", "(line 2: 'def f(:')", None),
        ("x = 1\nreturn x", "'return' outside function (line 2: 'return x')", None),
        ("for i in y:\nprint(i)", "expected an indented block", None),
        ("\n#!/bin/bash\nhostname", "The #! is not at the beginning", "including blank lines"),
        ("  #!/bin/bash\nhostname", "The #! is not at the beginning", None),
        ("\ufeff#!/bin/bash\nhostname", "The #! is not at the beginning", None),
        ("#!/bin/bash\r\nhostname\r\n", "Windows line ends (CR LF)", "Save it with Unix line ends."),
        ("#!/bin/bash\nprintf '\0'", "Line 2 of the cell holds a NUL byte", None),
        ("x = '\0'", "Line 1 of the cell holds a NUL byte", None),
        ("x = 1\ny = '\ud800'", "Line 2 of the cell holds half a character", None),
        ("(" * 300, "neither a script nor Python", None),
        ("#!/bin/sh\n" + "x" * MAX_SCRIPT_BYTES, "longer than 4 MiB", None),
        ("é" * (MAX_SCRIPT_BYTES // 2) + " = 1", "longer than 4 MiB", None),
    ],
)
def test_cells_that_are_refused(cell: str, message: str, hint: str | None) -> None:
    with pytest.raises(CellError) as caught:
        classify(cell)
    assert message in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.hint
    assert hint is None or hint in caught.value.hint


@pytest.mark.parametrize(
    ("cell", "shown", "name"),
    [
        ("nvidia-smi", "nvidia-smi", "nvidia"),
        ("nvidia-smi -L\n", "nvidia-smi -L", "nvidia"),
        ("hostname", "hostname", "hostname"),
        ("#SBATCH --gpus 1\npwd", "pwd", "pwd"),
        ("make -j8 > log", "make -j8 > log", "make"),
        ("cd /tmp\nls", "cd /tmp", "cd"),
        ("set -e\npython3 - x", "set -e", "e"),
        ("'Train.'\n42\nhostname; date", "hostname; date", "hostname"),
        ("df.shape", "df.shape", "df"),
    ],
)
def test_commands_of_a_shell_that_are_python_too_are_refused(cell: str, shown: str, name: str) -> None:
    with pytest.raises(CellError) as caught:
        classify(cell, TransformerManager().transform_cell, RUNNER_NAMES)
    assert caught.value.message == f"The cell would fail at {shown!r}, because it has no variable {name}."
    assert caught.value.hint == "Add #!/bin/bash as its first line if it is a shell script."
    assert caught.value.details["variable"] == name
    assert classify(cell, TransformerManager().transform_cell) == "python", "a process keeps earlier variables"


@pytest.mark.parametrize(
    "cell",
    [
        "42",
        "'a text'",
        "-1 + 2j",
        "task_index",
        "_ + __name__",
        "__file__",
        "In, Out",
        "get_ipython",
        "display",
        "id",
        "!nvidia-smi",
        "%cd /tmp\nls",
        "x = 1\nx",
        "import os\nos.name",
        "from site_setup import *\nnodes",
        "train(lr)",
        "values[7]",
        "x, y",
        "await work",
        "[n for n in range(3)]",
        "print if ok else ok",
        "'\\d'\nint",  # the job shows warnings
    ],
)
def test_other_python_is_not_taken_for_a_shell_script(cell: str) -> None:
    assert classify(cell, TransformerManager().transform_cell, RUNNER_NAMES) == "python"


def test_a_cell_with_bytes_that_are_not_text_is_a_script() -> None:
    assert classify(b"#!/bin/sh\necho \xff".decode("utf-8", "surrogateescape")) == "script"


# Headers; test_script_real.py compares with sbatch ----------------------------------------------------------------


def test_header_lines_count_until_the_first_command() -> None:
    text = (
        "#!/bin/sh\n# a comment\n\n#SBATCH -p arandu\n  # more\n#SBATCH --gpus=1\n\nhostname\n#SBATCH -n2\n##SBATCH -n3"
    )
    assert header_options(text) == ["-p", "arandu", "--gpus=1"]
    assert ignored_headers(text) == [9]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#SBATCH --comment 'a b' -n\t2", ["--comment", "a b", "-n", "2"]),
        ("#SBATCH-n2", ["-n2"]),
        ("#SBATCH --time=1 # until lunch", ["--time=1"]),
        ("#SBATCH --name=a#b", ["--name=a"]),
        ("#SBATCH --name=a\\#b \\-n", ["--name=a#b", "-n"]),
        ("#SBATCH a\\ b", ["a b"]),
        ("#SBATCH 'it\\'s' \"a'b\"", ["it's", "a'b"]),
        ("#SBATCH --comment '' -n2", ["--comment"]),  # sbatch stops at an empty word
        ("##SBATCH -n2", []),
        (" #SBATCH -n2", []),
        ("#sbatch -n2", []),
        ("#SLURM -n2", ["-n2"]),
        ("#SBATCH -n2\r", ["-n2"]),
        ("#SBATCH hetjob -n2", [HET]),
        ("#SBATCH -n2 hetjob -n3", ["-n2"]),
        ("#SBATCH --comment=hetjob", ["--comment=hetjob"]),
        ("#SBATCH", []),
    ],
)
def test_header_words(line: str, words: list[str]) -> None:
    assert header_options(f"#!/bin/sh\n{line}\n") == words


@pytest.mark.parametrize("line", ["#SBATCH --comment='a b", '#SBATCH "', "#SBATCH : -n2"])
def test_headers_that_sbatch_stops_at(line: str) -> None:
    with pytest.raises(CellError, match="Line 2 of the cell") as caught:
        header_options(f"#!/bin/sh\n{line}\n")
    assert caught.value.details["line"] == 2


@pytest.mark.parametrize(
    ("line", "options", "rest"),
    [
        ('a "":', [], ["a", ":"]),
        ("':' -n2", [], [":", "-n2"]),
        ("--comment \\: -n2", ["comment", "ntasks"], []),
        ("-n2 hetjob", ["ntasks"], []),
        ("hetjob", [HET], []),
    ],
)
def test_a_quoted_colon_divides_nothing(line: str, options: list[str], rest: list[str]) -> None:
    split = OptionTable.for_command("sbatch").split(header_options(f"#!/bin/sh\n#SBATCH {line}\n"))
    assert ([option.name for option in split.options], split.rest) == (options, rest)


@given(st.text(st.sampled_from("#SBATCH \n\r\t'\"\\ab:-")))
def test_any_text_has_a_header(text: str) -> None:
    try:
        words = header_options(f"#SBATCH{text}")
    except CellError:
        return
    assert all(words)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("-n=4", "Write #SBATCH -n 4 or --ntasks=4."),
        ("-t=10", "Write #SBATCH -t 10 or --time=10."),
        ("-p= gpu", "Write #SBATCH -p gpu"),
        ("--time = 3", "Write #SBATCH --time=3"),
    ],
)
def test_an_equals_sign_that_sbatch_reads_as_something_else_is_refused(line: str, hint: str) -> None:
    table = OptionTable.for_command("sbatch")
    with pytest.raises(CellError, match="Line 2: no ") as caught:
        check_equals_signs(f"#!/bin/sh\n#SBATCH {line}\n", table)
    assert (caught.value.hint, caught.value.details["line"]) == (hint, 2)
    check_equals_signs("#!/bin/sh\n#SBATCH -n4 -t 5 --comment==x\n", table)
    assert not any("a part of the value" in said for said in header_warnings(f"#!/bin/sh\n#SBATCH {line}\n", table))


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("-J=name", "-J name or --job-name=name"),
        ('-J="my run" -n1', "-J 'my run' or --job-name='my run'"),
        ("-o=%j.out", "-o %j.out or --output=%j.out"),
        ("-e=err", "-e err or --error=err"),
        ("-i=in.txt", "-i in.txt or --input=in.txt"),
        ("-J= name", "-J name"),
    ],
)
def test_a_value_that_sbatch_takes_with_its_equals_sign_is_a_warning(line: str, forms: str) -> None:
    text, table = f"#!/bin/sh\n#SBATCH {line}\n", OptionTable.for_command("sbatch")
    check_equals_signs(text, table)
    said = f"Line 2: for sbatch, the = after {line[:2]} is a part of the value. Write #SBATCH {forms}."
    assert said in header_warnings(text, table)
    assert header_warnings("#!/bin/sh\n#SBATCH -J name --comment==x\n", table) == []


# Shell text ---------------------------------------------------------------------------------------------------------


@given(WORDS)
def test_shell_text_is_read_back_by_sh(words: list[str]) -> None:
    script = f"printf '%s\\0' {quote_argv(words)}\n".encode()
    said = subprocess.run(["/bin/sh", "-s"], input=script, capture_output=True, check=True).stdout
    assert said.decode() == "".join(f"{word}\0" for word in words)


def test_a_nul_is_never_shell_text() -> None:
    with pytest.raises(CellError, match="NUL"):
        quote_argv(["a", "b\0"])


def test_the_script_of_a_python_cell_runs_its_interpreter(tmp_path: Path) -> None:
    odd = tmp_path / 'it\'s $HOME `x` "py"'
    odd.symlink_to(sys.executable)
    shown = "import sys; print(sys.argv[1:])"
    header = "#SBATCH --gpus 1\r\n#SBATCH --comment='$(touch x)'\nimport numpy\n#SBATCH -n2\n"
    text = job_script([str(odd), "-c", shown, "-a b", ""], header=header)
    lines = text.split("\n")
    assert lines[:3] == ["#!/bin/sh", "#SBATCH --gpus 1", "#SBATCH --comment='$(touch x)'"]
    assert header_options(text) == ["--gpus", "1", "--comment=$(touch x)"]
    assert ignored_headers(text) == []
    assert classify(text) == "script"
    path = tmp_path / "job"
    path.write_text(text)
    done = subprocess.run(["/bin/sh", path, "-n4", "é"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "['-a b', '', '-n4', 'é']\n"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("python", ["/no/such/python", "no-such-python", "it's not; touch x"])
def test_a_node_without_the_interpreter_says_so(python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", job_script([python, "-u", "x"])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SLURMD_NODENAME": "dgx01"},
    )
    assert done.returncode == 127
    assert done.stderr == f"Node dgx01 has no {python}\nUse python=PATH with a Python that the node sees\n"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("python", ["/bin/true", "/bin/ls", "/bin/sh", "/bin/echo"])
def test_what_is_no_python_does_not_end_well(python: str) -> None:
    script = job_script([python, "-u", "x"])
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(rf"^Node \S+ has no working Python at {python}\nUse python=PATH", done.stderr, re.M)


def test_a_python_that_needs_its_variables_is_one(tmp_path: Path) -> None:
    moved = tmp_path / "python"
    moved.write_text(f'#!/bin/sh\ncase "$1" in -E*) exit 1;; esac\nexec {shlex.quote(sys.executable)} "$@"\n')
    moved.chmod(0o755)
    script = job_script([str(moved), "-c", "print('runs')"])
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "runs\n", "")


OLD = sorted(Path.home().glob(".pyenv/versions/3.[67].*/bin/python3"))


@pytest.mark.parametrize("otherwise", ["", "/usr/bin/python3"])
@pytest.mark.parametrize("python", [None, *OLD], ids=["stand-in", *(path.parts[-3] for path in OLD)])
def test_a_python_that_is_too_old_is_said_in_words(python: Path | None, otherwise: str, tmp_path: Path) -> None:
    """Check with a stand-in, because few machines have such a Python: its output and failure are the same."""
    runner = tmp_path / "cell.py"
    runner.write_text("from __future__ import annotations\nprint('runs')\n")
    if python is None:
        python = tmp_path / "it's old"
        python.write_text('#!/bin/sh\n[ "$2" = -c ] && { echo 3.6; exit; }\necho SyntaxError >&2; exit 1\n')
        python.chmod(0o755)
    script = job_script([str(python), "-u", str(runner)], otherwise=otherwise)
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.match(r"Python 3\.[67] of node \S+ is too old for cells\n.*, 3\.8 or newer\n$", done.stderr), done.stderr
    assert otherwise or "Use python=PATH" in done.stderr
