"""Random headers against the real sbatch, whose arguments of getopt_long are recorded."""

from __future__ import annotations

import os
import re
import subprocess
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jupyter_slurm.domain.options.option_parser import HET, OptionTable, QuotedColon
from jupyter_slurm.domain.scripts.script import header_lines, header_options
from jupyter_slurm.domain.slurm_values import parse_memory, parse_time_limit
from jupyter_slurm.errors import CellError
from jupyter_slurm.services.submission.effective_options import options_in_force

pytestmark = pytest.mark.slurm

PARTS = [
    "a",
    "é",
    "-n2",
    "--comment=",
    " ",
    "\t",
    '"',
    "'",
    "\\",
    "#",
    ":",
    '""',
    "\\#",
    "hetjob",
    "PackJob",
    "\v",
    "=",
]
LINE = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)
START = st.sampled_from(["#SBATCH ", "#SBATCH\t", "#SBATCH", "#SLURM ", "##SBATCH ", " #SBATCH ", "#sbatch ", "# "])
LINES = st.lists(st.tuples(START, LINE).map("".join) | st.sampled_from(["", "  ", "#", "\t# x", "echo"]), max_size=4)


def _is_divider(word: str) -> bool:
    return word == HET and not isinstance(word, QuotedColon)


def test_headers_are_read_as_sbatch_reads_them(traced_sbatch: Any) -> None:
    """Check the first component's words. A word that is not an option stops sbatch before it contacts a controller."""
    seen = {"read": 0, "refused": 0}

    @settings(max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @example(["#SBATCH --comment='it\\'s' #x", "", "#SBATCH -n2"])
    @example(['#SBATCH a "":'])
    @example(["#SBATCH --comment \\: ':'"])
    @given(LINES)
    def compare(lines: list[str]) -> None:
        if traced_sbatch.version < (24, 5) and any("\\ " in line for line in lines):
            return  # older versions end the word at this point; the rest is another error
        # The last word stops every sbatch; it is in the first component unless a word began another.
        script = "\n".join(["#!/bin/sh", "#SBATCH -H", *lines, "#SBATCH stop-here", "true", ""])
        try:
            words = header_options(script)
        except CellError:
            words = None
        if words is None:
            runs = traced_sbatch.header(script)
            assert traced_sbatch.done.returncode != 0
            assert "job" in script.lower() or runs == []  # only the components before it were read
            seen["refused"] += 1
            return
        first = next(list(group) for is_end, group in groupby(words, _is_divider) if not is_end)
        if not any(not word.startswith("-") for word in first):
            return  # sbatch would continue with the next component, or with the controller
        assert traced_sbatch.header(script)[0] == first, script
        seen["read"] += 1

    compare()
    assert min(seen.values()) > 15, seen


def test_components(traced_sbatch: Any) -> None:
    """Check that ``hetjob`` begins a component, and that the rest of its line is lost."""
    script = "#!/bin/sh\n#SBATCH -n1\n#SBATCH hetjob -n2\n#SBATCH -n3 HETJOB -n4\n#SBATCH packjob\n#SBATCH stop-here\n"
    assert header_options(script) == ["-n1", HET, "-n3", HET, "stop-here"]
    runs = [words for words in traced_sbatch.header(script) if words]
    assert runs == [["-n1"], ["-n3"], ["stop-here"]]


OTHER = [
    ["#PBS -N a", "#SBATCH -J b"],
    ["#PBS -N a", "#BSUB -J b"],
    ["#PBS --job_name=a -q other", "#PBS -A acc"],
    ["#SBATCH --ignore-pbs", "#PBS -N a"],
    ["#PBS -l nodes=2:ppn=2,walltime=00:10:00,mem=100mb", "#PBS -W depend=afterok:1", "#PBS -j oe -V -r n"],
    ["#PBS -l select=2:ncpus=4:mpiprocs=2:mem=1gb", "#PBS -o none -e x%j"],
    ["#PBS -l naccelerators=2,nice=3", "#PBS -l nodes=host1:ppn=2", "#PBS -t 0-3%2 -v A=1,B", "#PBS -v C"],
    ['#BSUB -J "my job" -W 5 -n 2,4', '#BSUB -cwd /tmp -o none -x -m "n1 n2" -q other'],
    ["echo", "#PBS -N late", " #PBS -N no"],
    [*["true"] * 101, "#PBS -N much-later"],
    ["#PBS -N a # comment", "#PBS -h -p 5 -M me -m abe -a 2030-01-01"],
]


@pytest.mark.parametrize("lines", OTHER, ids=" ".join)
def test_lines_of_other_batch_systems_mean_what_they_mean_to_sbatch(lines: list[str], cluster: Any) -> None:
    """Compare with the options that ``sbatch -v`` lists, and with those of a script into which the lines are copied."""
    script = "\n".join(["#!/bin/sh", *lines, ""])

    def defined(text: str, *more: str) -> dict[str, str]:
        done = subprocess.run(
            ["sbatch", "-v", "--test-only", *more],
            input=text,
            env={**os.environ, **cluster.env()},
            cwd="/tmp",
            text=True,
            capture_output=True,
            check=False,
        )
        said = done.stderr.partition("defined options")[2].partition("end of defined")[0]
        return dict(re.findall(r"^sbatch: (\S+) +: (.+)$", said, re.MULTILINE))

    found = defined(script)
    assert found, "sbatch has listed its options"
    assert defined("\n".join(["#!/bin/sh", *header_lines(script), "true", ""])) == found
    table = OptionTable.for_command("sbatch", (22, 5))
    options = dict(options_in_force(table, [], script, {})[0].chosen)
    assert options.keys() - {"begin", "mail-type"} <= found.keys()
    compared = found.keys() - {"verbose", "test-only", "begin", "mail-type", "(null)"}
    assert {name: _plain(name, options[name]) for name in compared} == {n: _plain(n, found[n]) for n in compared}


def _plain(name: str, value: str | None) -> Any:
    """Return a value in a form in which that of a line and that of ``sbatch -v`` are the same."""
    if value in (None, "set", "exclusive"):
        return None
    if name in ("time", "mem"):
        return (parse_time_limit if name == "time" else parse_memory)(value)
    return value.removeprefix("gres:").removeprefix("/tmp/")
